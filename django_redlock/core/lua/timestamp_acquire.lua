-- Acquire a lock that older code takes with SETNX and a timestamp, or return the holder. Idempotent per token.
-- USES waking
-- KEYS 1 lock  2 waiters  3 holder (hash: value, token, owner; valid while the lock has that value)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 wait (as mutex_acquire's)  5 ms in a unit  6 clock skew in ms  7 token (to adopt)
--   token (to adopt): the token of the previous holder. Refused if neither token holds the lock.
-- Returns the server's time in µs; refused {0, lease left in ms, time, owner of the holder, empty for older code}. As
--   in mutex_acquire, a new client that can wait is also refused while a free lock has waiters. Returns an error that
--   begins with WRONGTYPE if the value is not a timestamp in that unit.
local held = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local now, micros = clock[1] * 1000 + math.floor(clock[2] / 1000), clock[1] * 1000000 + clock[2]
local wait, unit, skew = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local waiter = string.sub(ARGV[1], 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire

local holder = redis.call('HMGET', KEYS[3], 'value', 'token', 'owner')
local ours = held and held == holder[1]
local mine, left = ours and holder[2] == ARGV[1], 0
local adopted = ours and holder[2] == ARGV[7]
if ARGV[7] and not mine and not adopted then
  return {0, held and math.max(redis.call('PTTL', KEYS[1]), 0) or 0, micros, ours and holder[3] or ''}
end
if held and not mine and not adopted then
  left = ours and redis.call('PTTL', KEYS[1]) or -1 -- a value of this script has a ttl
  if left >= 0 then
    left = math.max(left, 1)
  else
    local due = string.match(held, '^%s*%d[%d.eE+]*%s*$') and tonumber(held)
    local ends = (due or 0) * unit
    if not due or ends > 100 * now or (ends > now / 10000 and ends < now / 100) then
      return redis.error_reply('WRONGTYPE no timestamp in units of ' .. unit .. ' ms: ' .. string.sub(held, 1, 40))
    end
    left = math.ceil((math.floor(due) + 1) * unit + skew - now)
  end
end
if left <= 0 and wait > 0 and not mine and not adopted and redis.call('ZCOUNT', KEYS[2], now, '+inf') > 0 then
  left, ours = 100, false -- free, but a waiter has been woken, as in mutex_acquire
end
if left > 0 then
  refuse(KEYS[2], waiter, now, wait)
  return {0, left, micros, ours and holder[3] or ''}
end

if wait < 0 then redis.call('ZREM', KEYS[2], waiter) end
-- The leading zero marks a value of this script: older code reads the same number, and never writes a leading zero.
local ttl = mine and math.max(redis.call('PTTL', KEYS[1]), ARGV[3]) or tonumber(ARGV[3]) -- as in mutex_acquire
local value = '0' .. string.format('%.0f', math.ceil((now + ttl + skew) / unit))
redis.call('SET', KEYS[1], value, 'PX', ttl)
redis.call('HSET', KEYS[3], 'value', value, 'token', ARGV[1], 'owner', ARGV[2])
redis.call('PEXPIRE', KEYS[3], ttl)
return micros
