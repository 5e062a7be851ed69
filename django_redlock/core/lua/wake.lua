-- Pass on a wake-up: the waiter that received it has gone.
-- KEYS 1 wake
-- ARGV none
-- Returns 1 pushed, 0 there is a wake-up: nobody is blocked on the list, and one is enough.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('RPUSH', KEYS[1], '1')
redis.call('PEXPIRE', KEYS[1], 10000)
return 1
