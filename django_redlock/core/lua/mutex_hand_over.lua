-- Release a mutex and acquire it for the next holder. Idempotent per token: a request sent twice is granted twice.
-- KEYS 1 lock  2 fence
-- ARGV 1 token of the next holder  2 its owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 token of the holder
-- Returns the server's time in µs; with fencing {1, fencing token, time};
--   0 not held, -1 held by another token.
local held = redis.call('GET', KEYS[1])
if not held or held == 'reserved' then return 0 end
local token = string.sub(held, 1, #ARGV[1])
if token ~= ARGV[5] and token ~= ARGV[1] then return -1 end
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]
local ttl = token == ARGV[1] and math.max(redis.call('PTTL', KEYS[1]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ttl)
if ARGV[4] ~= '1' then return micros end
local fence = math.max(micros, (tonumber(redis.call('GET', KEYS[2])) or 0) + 1)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
return {1, fence, micros}
