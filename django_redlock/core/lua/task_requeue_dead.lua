-- End a body whose process is dead: free the lock, or queue the task again for as long as its message may come back.
-- USES task_record
-- USES task_ended
-- KEYS 1 to 6 as task_record's  7 ended (set of numbers; absent if the message does not come back)
-- ARGV 1 task id  2 process  3 keep in ms  4 number of the delivery
--   process: the part of the owner's JSON with host and pid; keep: 0 to remove the record
-- Returns 1 removed or queued again; {1, message} as in task_end; 0 the task was not running in that process.
if KEYS[7] then mark_ended(KEYS[7], ARGV[4], '0') end -- the task has no result: its message runs again when it comes back
local entry = read(ARGV[1])
if not entry or entry.state ~= 'running' or not string.find(entry.owner, ARGV[2], 1, true) then return 0 end
stop(entry, ARGV[3])
wake()
return next_put_off()
