-- Acquire the first free mutex of several, or return the lease that ends first. Idempotent per token.
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake  4 fence (with fencing only), and so on of each other lock, in the order in which they are tried
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait (as mutex_acquire's)
-- Returns {1, fencing token, server time in µs, index}; refused, as mutex_acquire, {0, lease left in ms, time, owner}
--   for the lease that ends first. A waiter is listed for each of the locks.
local token, wait, step = ARGV[1], tonumber(ARGV[5]), ARGV[4] == '1' and 4 or 3
local last = #KEYS - #KEYS % step -- the quarantine adds a key
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local queued = wait < 0
local waiter = string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire
wait = math.abs(wait)

local locks = {}
for key = 1, last, step do locks[#locks + 1] = KEYS[key] end
local held, chosen, free = redis.call('MGET', unpack(locks)), nil, 0
for i, value in ipairs(held) do
  if not value or value == 'reserved' then -- see free_mutex in waking
    held[i], free = false, free + 1
  elseif string.sub(value, 1, #token) == token then
    chosen = i
  end
end
for i = 1, chosen and 0 or #locks do
  if not held[i] then
    redis.call('GET', locks[i]) -- fails for a key of another type, which MGET reports as absent
    -- Waiters have been woken for free locks. A newcomer gets a lock only if there are more free locks than waiters.
    if queued or wait == 0 or redis.call('ZCOUNT', KEYS[step * (i - 1) + 2], now, '+inf') < free then
      chosen = i
      break
    end
  end
end

if not chosen then
  -- If a lock is free for a waiter that was woken, a newcomer may try again in 100 ms.
  local first, owner = free > 0 and 100 or math.huge, ''
  if wait > 1 then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now) end -- enough: clients begin at different locks
  for i = 1, #locks do
    local left = held[i] and redis.call('PTTL', locks[i]) or -1
    if left >= 0 and left < first then first, owner = left, string.match(held[i], ' (.*)$') or '' end
    if wait > 1 then
      enlist(KEYS[step * (i - 1) + 2], waiter, now, wait)
    elseif queued then
      redis.call('ZREM', KEYS[step * (i - 1) + 2], waiter)
    end
  end
  return {0, first == math.huge and -1 or first, micros, owner}
end

local ttl = held[chosen] and math.max(redis.call('PTTL', locks[chosen]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
redis.call('SET', locks[chosen], token .. ' ' .. ARGV[2], 'PX', ttl)
-- A waiter woken by one lock may have acquired another: wake the waiters of the other free locks.
for i = 1, queued and #locks or 0 do
  local waiters, wake = KEYS[step * (i - 1) + 2], KEYS[step * (i - 1) + 3]
  redis.call('ZREM', waiters, waiter)
  if i ~= chosen and not held[i] and redis.call('EXISTS', waiters) == 1 then wake_one(wake) end
end
if step == 3 then return {1, micros, micros, chosen} end
-- USES fencing
return {1, next_fence({KEYS[4 * chosen]}, micros), micros, chosen}
