-- Acquire the first free mutex of several, or return the lease that ends first. Idempotent per token.
-- KEYS 1 lock  2 waiters  3 wake  4 fence, and so on of each other lock, in the order in which they are tried
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait (as mutex_acquire's)  6 number of locks
-- Returns {1, fencing token, server time in µs, index}; refused, as mutex_acquire, {0, lease left in ms, time, owner}
--   for the lease that ends first. A waiter is listed for each of the locks.
local token, wait, last = ARGV[1], tonumber(ARGV[5]), 4 * ARGV[6]
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local queued = wait < 0
local waiter = string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire
wait = math.abs(wait)

local locks = {}
for key = 1, last, 4 do locks[#locks + 1] = KEYS[key] end
local held, chosen, free = redis.call('MGET', unpack(locks)), nil, 0
for i, value in ipairs(held) do
  if not value or value == 'reserved' then -- see free_mutex in fair_queue
    held[i], free = false, free + 1
  elseif string.sub(value, 1, #token) == token then
    chosen = i
  end
end
for i = 1, chosen and 0 or #locks do
  if not held[i] then
    redis.call('GET', locks[i]) -- fails for a key of another type, which MGET reports as absent
    -- Waiters have been woken for free locks. A newcomer gets a lock only if there are more free locks than waiters.
    if queued or wait == 0 or redis.call('ZCOUNT', KEYS[4 * i - 2], now, '+inf') < free then
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
      redis.call('ZADD', KEYS[4 * i - 2], now + wait, waiter)
      redis.call('PEXPIRE', KEYS[4 * i - 2], wait + 1000)
    elseif queued then
      redis.call('ZREM', KEYS[4 * i - 2], waiter)
    end
  end
  return {0, first == math.huge and -1 or first, micros, owner}
end

local ttl = held[chosen] and math.max(redis.call('PTTL', locks[chosen]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
redis.call('SET', locks[chosen], token .. ' ' .. ARGV[2], 'PX', ttl)
-- A waiter woken by one lock may have acquired another: wake the waiters of the other free locks.
for i = 1, queued and #locks or 0 do
  local waiters, wake = KEYS[4 * i - 2], KEYS[4 * i - 1]
  redis.call('ZREM', waiters, waiter)
  if i ~= chosen and not held[i] and redis.call('EXISTS', waiters) == 1 and redis.call('EXISTS', wake) == 0 then
    redis.pcall('RPUSH', wake, '1')
    redis.pcall('PEXPIRE', wake, 10000)
  end
end
if ARGV[4] ~= '1' then return {1, micros, micros, chosen} end
local fence = math.max(micros, (tonumber(redis.call('GET', KEYS[4 * chosen])) or 0) + 1)
redis.call('SET', KEYS[4 * chosen], string.format('%.0f', fence), 'PX', 86400000)
return {1, fence, micros, chosen}
