-- Extend a timestamp lock to ttl from now, if the token still holds it: a new timestamp under the same token. Also used to
-- release a lock that stays unavailable for a time.
-- KEYS 1 lock  2 holder (as timestamp_acquire's)
-- ARGV 1 token, or what the tokens of all attempts begin with  2 ttl in ms  3 ms in a unit of the value  4 clock skew in ms
-- Returns 1 extended, 0 not held, -1 held by another token or by older code.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
local holder = redis.call('HMGET', KEYS[2], 'value', 'token')
if holder[1] ~= held or string.sub(holder[2], 1, #ARGV[1]) ~= ARGV[1] then return -1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local value = '0' .. string.format('%.0f', math.ceil((now + ARGV[2] + ARGV[4]) / ARGV[3]))
redis.call('PEXPIRE', KEYS[2], ARGV[2]) -- first: a full server refuses a script whose first write needs memory
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'value', value)
return 1
