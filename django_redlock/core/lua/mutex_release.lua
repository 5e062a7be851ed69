-- Free a mutex, if the token still holds it, and wake one waiter.
-- USES line
-- KEYS 1 lock  2 waiters  3 wake
-- ARGV 1 token  2 keep in ms (>0: hold it that much longer, as nobody's)
-- Returns 1 freed, 0 nobody held it, -1 another holds it.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
redis.call('DEL', KEYS[1])
-- A wake-up that is still in the list means that nobody is blocked on it: one is enough. Should the push fail, the lock
-- is free all the same, and the waiter comes back by itself.
if redis.call('EXISTS', KEYS[2]) == 1 and not wake_line(true) and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.pcall('RPUSH', KEYS[3], '1')
  redis.pcall('PEXPIRE', KEYS[3], 10000)
end
return 1
