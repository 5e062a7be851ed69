-- Extend a mutex's lease, if the token still holds it, but never shorten the time for which the key stays.
-- KEYS 1 lock (as mutex_extend's)
-- ARGV 1 token  2 ttl in ms  3 fencing (1 or 0)
-- Returns 1 extended, 0 not held, -1 held by another token.
local held = redis.call('GET', KEYS[1])
if not held or held == 'reserved' then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
-- A write in any case: after a script that only reads, WAIT counts replicas that have confirmed earlier writes.
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
if ARGV[3] == '1' then redis.pcall('PEXPIRE', KEYS[1] .. ':fence', 86400000) end
return 1
