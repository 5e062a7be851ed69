-- Give the record of a queued task another task id: the record was written before the task's id was known.
-- USES task_record
-- KEYS 1 lock
-- ARGV 1 task id  2 new task id  3 new owner (JSON)
--   task id: '?' for any queued task whose id begins with '?'
-- Returns 1 renamed, 0 the task is not queued, or the new id has a record.
local entry = read(ARGV[1])
for _, each in ipairs(ARGV[1] == '?' and read_all() or {}) do
  if each.state == 'queued' and string.sub(each.task, 1, 1) == '?' then entry = each end
end
if not entry or entry.state ~= 'queued' or read(ARGV[2]) then return 0 end
-- A write without effect comes first: a full server refuses a script whose first write needs memory.
redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
write(ARGV[2], 'queued', '-', entry.delivery, entry.due, '-', 0, ARGV[3])
redis.call('HDEL', KEYS[1], entry.task)
return 1
