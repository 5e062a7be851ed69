-- Be listed as a waiter no more.
-- KEYS 1 waiters
-- ARGV 1 token without the number of the attempt, space, owner
-- Returns 1 if it was listed, 0 if not.
return redis.call('ZREM', KEYS[1], ARGV[1])
