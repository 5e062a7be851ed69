-- Replace the rest of the lease of several mutexes, if the token still holds them all.
-- KEYS 1 lock  2 fence  3 renewed, and so on of each other lock
-- ARGV 1 token  2 ttl in ms  3 tenure (as mutex_extend's)  4 number of locks
-- Returns 1 extended, 0 nobody holds one of them, -1 another holds one of them.
local absent = false
for i = 1, tonumber(ARGV[4]) do
  local held = redis.call('GET', KEYS[3 * i - 2])
  if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
  absent = absent or not held
end
if absent then return 0 end
for i = 1, tonumber(ARGV[4]) do
  redis.call('PEXPIRE', KEYS[3 * i - 2], ARGV[2])
  redis.call('PEXPIRE', KEYS[3 * i - 1], 86400000)
  redis.call('DEL', KEYS[3 * i])
  redis.pcall('HSET', KEYS[3 * i], ARGV[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[3 * i], ARGV[2])
end
return 1
