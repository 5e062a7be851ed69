-- Give a timestamp lock from a holder to its successor. Idempotent per token of the successor.
-- KEYS 1 lock  2 waiters  3 holder (as timestamp_acquire's)
-- ARGV 1 successor's token  2 its owner (JSON)  3 ttl in ms  4 -  5 ms in a unit  6 clock skew in ms  7 holder's token
-- Returns as timestamp_acquire. Refused if the lock is neither the holder's nor the successor's.
local held = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local now, micros = clock[1] * 1000 + math.floor(clock[2] / 1000), clock[1] * 1000000 + clock[2]
local holder = redis.call('HMGET', KEYS[3], 'value', 'token', 'owner')
local ours = held and held == holder[1]
if not ours or (holder[2] ~= ARGV[7] and holder[2] ~= ARGV[1]) then
  return {0, held and math.max(redis.call('PTTL', KEYS[1]), 0) or 0, micros, ours and holder[3] or ''}
end
local adopted = holder[2] == ARGV[1]
local ttl = adopted and math.max(redis.call('PTTL', KEYS[1]), ARGV[3]) or tonumber(ARGV[3]) -- as in mutex_acquire
local value = '0' .. string.format('%.0f', math.ceil((now + ttl + ARGV[6]) / ARGV[5]))
redis.call('SET', KEYS[1], value, 'PX', ttl)
redis.call('HSET', KEYS[3], 'value', value, 'token', ARGV[1], 'owner', ARGV[2])
redis.call('PEXPIRE', KEYS[3], ttl)
return micros
