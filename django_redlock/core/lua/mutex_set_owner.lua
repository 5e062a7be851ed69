-- After a local hand-over, write the new owner of a mutex and replace the rest of its lease, if the token holds it.
-- KEYS 1 lock (as mutex_extend's)
-- ARGV 1 token  2 ttl in ms  3 owner (JSON)
-- Returns 1 written, 0 not held, -1 held by another token.
local held = redis.call('GET', KEYS[1])
if not held or held == 'reserved' then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- first: a full server refuses a script whose first write needs memory
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[3], 'PX', ARGV[2])
return 1
