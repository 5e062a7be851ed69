-- Queue a task again whose process has died, for as long as its message may come back.
-- USES task_record
-- KEYS 1 lock  2 waiters  3 wake  4 done (of this delivery)
-- ARGV 1 task id  2 process  3 keep in ms
--   process: the part of the owner's JSON with host and pid; keep: 0 to remove the record
-- Returns 1 removed or queued again, 0 the task was not running in that process.
redis.call('DEL', KEYS[4]) -- its result has not arrived: the message runs again when it comes back
local entry = read(ARGV[1])
if not entry or entry.state ~= 'running' or not string.find(entry.owner, ARGV[2], 1, true) then return 0 end
stop(entry, ARGV[3])
wake(KEYS[2], KEYS[3])
return 1
