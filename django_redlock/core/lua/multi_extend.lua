-- Replace the rest of the lease of several mutexes, if the token still holds them all.
-- KEYS 1 lock (as mutex_extend's), and each other lock
-- ARGV 1 token  2 ttl in ms  3 fencing (1 or 0)
-- Returns 1 extended, 0 at least one lock is not held, -1 at least one lock has another holder.
local absent = false
for _, key in ipairs(KEYS) do
  local held = redis.call('GET', key)
  if held == 'reserved' then held = false end
  if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
  absent = absent or not held
end
if absent then return 0 end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[2])
  if ARGV[3] == '1' then redis.pcall('PEXPIRE', key .. ':fence', 86400000) end
end
return 1
