-- Pass on a wake-up whose receiver has stopped waiting.
-- KEYS 1 wake
-- ARGV none
-- Returns 1 pushed, 0 not needed: the list has a wake-up, so no waiter is blocked on the list.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('RPUSH', KEYS[1], '1')
redis.call('PEXPIRE', KEYS[1], 10000)
return 1
