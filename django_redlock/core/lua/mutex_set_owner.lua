-- Say who holds a mutex now, and replace the rest of its lease, if the token still holds it.
-- KEYS 1 lock (as mutex_extend's)
-- ARGV 1 token  2 ttl in ms  3 owner (JSON)  4 tenure (as mutex_extend's)
-- Returns 1 told, 0 nobody holds it, -1 another holds it.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
local renewed = KEYS[1] .. ':renewed'
redis.pcall('DEL', renewed) -- first: a server that is full lets go on what has begun to write
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[3], 'PX', ARGV[2])
redis.pcall('HSET', renewed, ARGV[1], ARGV[4])
redis.pcall('PEXPIRE', renewed, ARGV[2])
return 1
