-- Store or read the last runs of periodic tasks. Refused after a later leader has written. Idempotent.
-- KEYS 1 runs
-- ARGV 1 fencing token  2 entry, empty to read all runs  3 its run before  4 its run from now on  5 ms to keep the runs
--   fencing token: of the leader; run before, run from now on: empty if there is none
-- Returns {field, value, …} for a read, else 1; 0 if a later leader has written, or another run is stored than the run before.
local token = redis.call('HGET', KEYS[1], '')
if token and tonumber(ARGV[1]) < tonumber(token) then return 0 end
if ARGV[2] ~= '' then
  local run = redis.call('HGET', KEYS[1], ARGV[2]) or ''
  if run ~= ARGV[3] and run ~= ARGV[4] then return 0 end
  if ARGV[4] == '' then redis.call('HDEL', KEYS[1], ARGV[2]) else redis.call('HSET', KEYS[1], ARGV[2], ARGV[4]) end
end
redis.call('HSET', KEYS[1], '', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return ARGV[2] ~= '' and 1 or redis.call('HGETALL', KEYS[1])
