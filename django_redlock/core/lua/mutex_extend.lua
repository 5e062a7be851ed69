-- Replace the rest of a mutex's lease, if the token still holds it.
-- KEYS 1 lock; beside it <lock>:fence
--   Only the lock is in KEYS: while a Cluster moves the slot, the fence may be on another server, hence pcall.
-- ARGV 1 token  2 ttl in ms  3 fencing (1 or 0)
-- Returns 1 extended, 0 not held, -1 held by another token.
local held = redis.call('GET', KEYS[1])
if not held or held == 'reserved' then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] == '1' then redis.pcall('PEXPIRE', KEYS[1] .. ':fence', 86400000) end
return 1
