-- Release a timestamp lock if it still has the digest that timestamp_describe returned, and wake one waiter.
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake  4 holder (as timestamp_acquire's)
-- ARGV 1 digest
-- Returns 1 released, 0 not held, -1 another holder has it now.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
local holder = redis.call('HMGET', KEYS[4], 'value', 'token', 'owner')
local value = holder[1] == held and holder[2] .. ' ' .. holder[3] or held
if redis.sha1hex(value) ~= ARGV[1] then return -1 end
redis.call('DEL', KEYS[1], KEYS[4])
if redis.call('EXISTS', KEYS[2]) == 1 then wake_one(KEYS[3]) end
return 1
