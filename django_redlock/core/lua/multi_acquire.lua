-- Acquire all of several mutexes, or none and return the index of the first that is held. Idempotent per token.
-- KEYS 1 lock  2 waiters  3 wake  4 fence, and so on of each other lock
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait (as mutex_acquire's)  6 number of locks
-- Returns the server's time in µs; with fencing {1, fencing token, time}, one token for all; refused, as mutex_acquire, {0, lease left in ms, time, owner, index}. A waiter is listed for that lock only.
local token, wait, number = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local queued = wait < 0
local waiter = string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire
wait = math.abs(wait)

local held, which = {}, nil
for i = 1, number do
  held[i] = redis.call('GET', KEYS[4 * i - 3])
  if held[i] == 'reserved' and (queued or wait == 0) then held[i] = false end -- as in mutex_acquire
  if held[i] and string.sub(held[i], 1, #token) ~= token then which = which or i end
end

-- Remove the waiter from all locks except the lock that refused. Pass on the wake-ups of free locks.
for i = 1, queued and number or 0 do
  local waiters, wake = KEYS[4 * i - 2], KEYS[4 * i - 1]
  if i ~= which or wait <= 1 then redis.call('ZREM', waiters, waiter) end
  if which and not held[i] and redis.call('EXISTS', waiters) == 1 and redis.call('EXISTS', wake) == 0 then
    redis.pcall('RPUSH', wake, '1')
    redis.pcall('PEXPIRE', wake, 10000)
  end
end

if which then
  if wait > 1 then
    redis.call('ZREMRANGEBYSCORE', KEYS[4 * which - 2], '-inf', now)
    redis.call('ZADD', KEYS[4 * which - 2], now + wait, waiter)
    redis.call('PEXPIRE', KEYS[4 * which - 2], wait + 1000)
  end
  return {0, redis.call('PTTL', KEYS[4 * which - 3]), micros, string.match(held[which], ' (.*)$') or '', which}
end

local fence = micros
for i = 1, number do
  local ttl = held[i] and math.max(redis.call('PTTL', KEYS[4 * i - 3]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
  redis.call('SET', KEYS[4 * i - 3], token .. ' ' .. ARGV[2], 'PX', ttl)
  if ARGV[4] == '1' then fence = math.max(fence, (tonumber(redis.call('GET', KEYS[4 * i])) or 0) + 1) end
end
if ARGV[4] ~= '1' then return micros end
for i = 1, number do redis.call('SET', KEYS[4 * i], string.format('%.0f', fence), 'PX', 86400000) end
return {1, fence, micros}
