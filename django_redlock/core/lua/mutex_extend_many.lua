-- Replace the rest of the leases of several mutexes, each with its own token.
-- KEYS 1 lock (as mutex_extend's), and each other lock
-- ARGV 1 ttl in ms  2 fencing (1 or 0)  3 token of the first lock, and so on of each other lock
-- Returns the number of locks if all were extended, else a list with a number for each lock: 1 extended, 0 not extended
--   (mutex_extend returns the reason).
local replies, extended = {}, 0
for i, held in ipairs(redis.call('MGET', unpack(KEYS))) do
  local token = ARGV[i + 2]
  replies[i] = 0
  if held and string.sub(held, 1, #token) == token then
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
    if ARGV[2] == '1' then redis.pcall('PEXPIRE', KEYS[i] .. ':fence', 86400000) end
    replies[i], extended = 1, extended + 1
  end
end
return extended == #KEYS and extended or replies
