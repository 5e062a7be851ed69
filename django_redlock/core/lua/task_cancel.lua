-- Forget a task that is queued and will not run: it could not be sent, was revoked, has expired. Never a running one.
-- USES fair_queue
-- KEYS 1 lock (as mutex_release's)
-- ARGV 1 task id  2 sending (empty: whichever is queued)
-- Returns 1 forgotten, 0 it was not queued.
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local value = redis.call('HGET', KEYS[1], ARGV[1])
local state, token, sending, due, following, _, owner = string.match(value or '', pattern)
if not state then return 0 end
if state == 'running' then
  if following == '-' or ARGV[2] ~= '' and following ~= ARGV[2] then return 0 end
  -- First, and with no effect: a server that is full lets go on what has begun to write.
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], ARGV[1], table.concat({state, token, sending, due, '-', '0', owner}, ' '))
  return 1
end
if ARGV[2] ~= '' and sending ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.pcall('EXISTS', KEYS[1] .. ':waiters') == 1 then wake_one(KEYS[1]) end
return 1
