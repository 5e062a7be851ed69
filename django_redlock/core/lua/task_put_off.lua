-- Store the message of a call that was refused at its start, until a body ends or the call starts.
-- USES task_record
-- KEYS 1 to 6 as task_record's
-- ARGV 1 task id  2 delivery id  3 limit  4 rivals  5 message  6 ttl in ms  7 most messages
--   rivals: as in task_start; most messages: with this number of stored messages, no further message is stored
-- Returns 1 refused still, 0 the call may start now. A call that was replaced is refused, and its message is not stored.
if is_replaced(ARGV[2]) then return 1 end
if not find_blocker(ARGV[1], '', ARGV[4], ARGV[3]) then return 0 end
local messages, order = KEYS[4], KEYS[5]
if redis.call('HLEN', messages) < tonumber(ARGV[7]) then
  if redis.call('HSET', messages, ARGV[2], ARGV[5]) == 1 then redis.call('RPUSH', order, ARGV[2]) end
  redis.call('PEXPIRE', messages, ARGV[6])
  redis.call('PEXPIRE', order, ARGV[6])
end
return 1
