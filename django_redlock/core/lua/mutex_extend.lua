-- Replace the rest of a mutex's lease, if the token still holds it.
-- KEYS 1 lock  2 fence  3 renewed (hash: token -> tenure; there is none before the first renewal)
-- ARGV 1 token  2 ttl in ms  3 tenure: how often it has been renewed, ms since the grant, ttl in ms
-- Returns 1 extended, 0 nobody holds it, -1 another holds it.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], 86400000)
redis.call('DEL', KEYS[3]) -- what holders before have left
redis.pcall('HSET', KEYS[3], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return 1
