-- Free those of several mutexes that the token holds, and wake a waiter of each.
-- USES line
-- KEYS 1 lock  2 waiters  3 wake, and so on of each other lock
-- ARGV 1 token  2 keep in ms (as mutex_release's)  3 number of locks  4 how many of them it must have held
-- Returns 1 if it held so many, 0 if not.
local freed, keep = 0, tonumber(ARGV[2])
for key = 1, 3 * ARGV[3], 3 do
  local held = redis.pcall('GET', KEYS[key]) -- a key of another type is none of ours, and no reason to stop here
  if type(held) == 'string' and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
    freed = freed + 1
    if keep > 0 then
      redis.call('PEXPIRE', KEYS[key], keep)
    else
      redis.call('DEL', KEYS[key])
      local lock, waiters, wake = KEYS[key], KEYS[key + 1], KEYS[key + 2]
      local told = redis.call('EXISTS', waiters) == 0 or wake_line(true, lock, waiters)
      if not told and redis.call('EXISTS', wake) == 0 then
        redis.pcall('RPUSH', wake, '1')
        redis.pcall('PEXPIRE', wake, 10000)
      end
    end
  end
end
return freed >= tonumber(ARGV[4]) and 1 or 0
