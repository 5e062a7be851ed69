-- Forget a task that is queued and will not run: it could not be sent, was revoked, has expired. Never a running one.
-- KEYS 1 lock  2 waiters  3 wake
-- ARGV 1 task id  2 sending (empty: whichever is queued)
-- Returns 1 forgotten, 0 it was not queued.
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local value = redis.call('HGET', KEYS[1], ARGV[1])
local state, token, sending, due, following, _, owner = string.match(value or '', pattern)
if not state then return 0 end
if state == 'running' then
  if following == '-' or ARGV[2] ~= '' and following ~= ARGV[2] then return 0 end
  -- First, and with no effect: a full server refuses a script whose first write needs memory.
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], ARGV[1], table.concat({state, token, sending, due, '-', '0', owner}, ' '))
  return 1
end
if ARGV[2] ~= '' and sending ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.pcall('RPUSH', KEYS[3], '1')
  redis.pcall('PEXPIRE', KEYS[3], 10000)
end
return 1
