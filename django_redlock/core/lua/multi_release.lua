-- Release each of several mutexes that the token holds, and wake a waiter of each released mutex.
-- USES fair_queue
-- KEYS 1 lock (as mutex_release's), and each other lock
-- ARGV 1 token  2 how many of the locks it must have held  3 keep in ms (as mutex_release's)
-- Returns 1 if the token held at least that number of locks, else 0.
local freed, keep = 0, tonumber(ARGV[3] or 0)
for _, lock in ipairs(KEYS) do
  local held = redis.pcall('GET', lock) -- a key of another type must not stop the release of the others
  if type(held) == 'string' and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
    freed = freed + 1
    if keep > 0 then
      redis.call('PEXPIRE', lock, keep)
    else
      free_mutex(lock, redis.pcall('EXISTS', lock .. ':waiters', lock .. ':line'))
    end
  end
end
return freed >= tonumber(ARGV[2]) and 1 or 0
