-- Acquire a mutex in order of arrival, or return the holder. Idempotent per token, as mutex_acquire.
-- USES fair_queue
-- KEYS 1 lock  2 waiters  3 wake  4 line  5 fence (with fencing only)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait (as mutex_acquire's)  6 order
--   order: 2: in order of arrival, 0: the holder restores its lock, regardless of the queue
-- Returns as mutex_acquire. Also refused while another waiter is first in the queue; the lease left is then the time
--   until that waiter's entry expires.
local held = redis.call('GET', KEYS[1])
if held == 'reserved' then held = false end -- for a waiter: see free_mutex in waking
local clock = redis.call('TIME')
local micros, wait = clock[1] * 1000000 + clock[2], tonumber(ARGV[5])
local place = 'w ' .. string.sub(ARGV[1], 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire

local left
if not held then
  left = ARGV[6] ~= '0' and ahead(place, 'w', math.floor(micros / 1000))
elseif string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
  left = redis.call('PTTL', KEYS[1])
end
if left then
  refuse_in_queue(place, micros, wait)
  local space = held and string.find(held, ' ', 1, true)
  return {0, left, micros, space and string.sub(held, space + 1) or ''}
end

if wait < 0 then leave(place) end
local ttl = held and math.max(redis.call('PTTL', KEYS[1]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ttl)
if ARGV[4] ~= '1' then return micros end
-- USES fencing
return {1, next_fence({KEYS[5]}, micros), micros}
