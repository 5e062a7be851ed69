-- Say what a lock's key holds, without changing anything.
-- KEYS 1 lock  2 waiters
-- ARGV 1 with the waiters' entries (1 or 0)
-- Returns {type, value, lease left in ms, number of waiters, SHA-1 of the value[, entries]}; nothing when nobody holds it.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return false end
local value = kind == 'string' and redis.call('GET', KEYS[1])
  or kind == 'hash' and redis.call('HGETALL', KEYS[1])
  or kind == 'zset' and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  or ''
local digest = kind == 'string' and redis.sha1hex(value) or ''
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
local answer = {kind, value, redis.call('PTTL', KEYS[1]), redis.call('ZCOUNT', KEYS[2], millis, '+inf'), digest}
if ARGV[1] == '1' then
  answer[6] = redis.call('ZRANGEBYSCORE', KEYS[2], millis, '+inf')
end
return answer
