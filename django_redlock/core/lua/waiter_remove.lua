-- Remove a waiter, and wake the next waiter if the lock is free or may have a free share.
-- USES fair_queue
-- KEYS 1 lock  2 waiters  3 wake, and so on of each other lock
-- ARGV 1 token without the number of the attempt, space, owner  2 mode of a waiter in a fair queue, else empty
-- Returns 1 if the waiter was listed for at least one lock, else 0.
local listed = 0
for key = 1, #KEYS, 3 do
  local lock, waiters = KEYS[key], KEYS[key + 1]
  if ARGV[2] ~= '' then redis.call('ZREM', lock .. ':line', ARGV[2] .. ' ' .. ARGV[1]) end
  if redis.call('ZREM', waiters, ARGV[1]) == 1 then
    listed = 1
    local kind = redis.call('TYPE', lock).ok
    local free = kind == 'none' or kind == 'string' and redis.call('GET', lock) == 'reserved'
    local shares = kind == 'hash' and ARGV[2] == '' -- the waiter may have received the wake-up for a free permit
    if redis.call('EXISTS', waiters) == 1 and not wake_line(free, lock) and (free or shares) then wake_one(lock) end
  end
end
return listed
