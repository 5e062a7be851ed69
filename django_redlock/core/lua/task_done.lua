-- Remember or forget that a delivery of a task has ended. This is separate from task_end and task_requeue_dead because
-- a Cluster that moves the slot refuses a request with two keys (TRYAGAIN).
-- KEYS 1 done
-- ARGV 1 remember in ms (0: forget)
-- Returns 1.
if ARGV[1] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], 'ended', 'PX', ARGV[1])
end
return 1
