-- Remember or forget that a delivery of a task has ended.
-- USES task_ended
-- KEYS 1 ended (set of numbers)
-- ARGV 1 remember in ms (0: forget)  2 number of the delivery
-- Returns 1.
mark_ended(KEYS[1], ARGV[2], ARGV[1])
return 1
