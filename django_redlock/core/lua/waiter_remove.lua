-- Remove a waiter, and wake the next waiter if the lock is free or may have a free share.
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake, and so on of each other lock; with a fair queue: 1 lock  2 waiters  3 wake  4 line
-- ARGV 1 token without the number of the attempt, space, owner  2 mode of a waiter in a fair queue, else empty
-- Returns 1 if the waiter was listed for at least one lock, else 0. Waiters in a fair queue soon try again by themselves.
if ARGV[2] ~= '' then
  redis.call('ZREM', KEYS[4], ARGV[2] .. ' ' .. ARGV[1])
  return redis.call('ZREM', KEYS[2], ARGV[1])
end
local listed = 0
for i = 1, #KEYS, 3 do
  if redis.call('ZREM', KEYS[i + 1], ARGV[1]) == 1 then
    listed = 1
    local kind = redis.call('TYPE', KEYS[i]).ok
    -- A share: the waiter may have received the wake-up for a free permit.
    local free = kind == 'none' or kind == 'hash' or kind == 'string' and redis.call('GET', KEYS[i]) == 'reserved'
    if free and redis.call('EXISTS', KEYS[i + 1]) == 1 then wake_one(KEYS[i + 2]) end
  end
end
return listed
