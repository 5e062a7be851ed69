-- Replace the rest of a mutex's lease, if the token still holds it.
-- KEYS 1 lock; beside it <lock>:fence and <lock>:renewed (hash: token -> tenure; none before the first renewal)
--   Only the lock is a key: while a Cluster moves its slot, what stands beside it may be elsewhere, hence pcall.
-- ARGV 1 token  2 ttl in ms  3 tenure: how often it has been renewed, ms since the grant, ttl in ms
-- Returns 1 extended, 0 nobody holds it, -1 another holds it.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local renewed = KEYS[1] .. ':renewed'
redis.pcall('PEXPIRE', KEYS[1] .. ':fence', 86400000)
redis.pcall('DEL', renewed) -- what holders before have left
redis.pcall('HSET', renewed, ARGV[1], ARGV[3])
redis.pcall('PEXPIRE', renewed, ARGV[2])
return 1
