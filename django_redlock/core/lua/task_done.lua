-- Remember that a delivery of a task has ended, or forget it, apart from task_end and task_requeue_dead: while a Cluster
-- moves their slot, a request of two keys is refused (TRYAGAIN).
-- KEYS 1 done
-- ARGV 1 remember in ms (0: forget)
-- Returns 1.
if ARGV[1] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], 'ended', 'PX', ARGV[1])
end
return 1
