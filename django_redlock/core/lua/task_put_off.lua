-- Keep the message of a call that was refused at its start, until a body ends or the call starts.
-- USES task_record
-- KEYS 1 lock
-- ARGV 1 task id  2 delivery id  3 limit  4 rivals  5 message  6 ttl in ms  7 most messages
--   rivals: as in task_start; most: the number of messages up to which another is kept
-- Returns 1 refused still, 0 the call may start now. A call that was replaced is refused, and its message is not kept.
if redis.call('EXISTS', replaced_key(ARGV[2])) == 1 then return 1 end
if not find_blocker(ARGV[1], '', ARGV[4], ARGV[3]) then return 0 end
local messages, order = put_off_key(), put_off_key() .. ':order'
if redis.call('HLEN', messages) < tonumber(ARGV[7]) then
  if redis.call('HSET', messages, ARGV[2], ARGV[5]) == 1 then redis.call('RPUSH', order, ARGV[2]) end
  redis.call('PEXPIRE', messages, ARGV[6])
  redis.call('PEXPIRE', order, ARGV[6])
end
return 1
