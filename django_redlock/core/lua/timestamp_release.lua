-- Release a timestamp lock if the token still holds it, or by force if it has the digest. Wakes one waiter.
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake  4 holder (as timestamp_acquire's)
-- ARGV 1 token  2 digest (for a release by force: the result of timestamp_describe; the token is then ignored)
-- Returns 1 released, 0 not held, -1 held by another token, or by older code that has overwritten the value.
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
local holder = redis.call('HMGET', KEYS[4], 'value', 'token', 'owner')
local ours = holder[1] == held
if ARGV[2] then
  if redis.sha1hex(ours and holder[2] .. ' ' .. holder[3] or held) ~= ARGV[2] then return -1 end
elseif not ours or string.sub(holder[2], 1, #ARGV[1]) ~= ARGV[1] then
  return -1
end
redis.call('DEL', KEYS[1], KEYS[4])
if redis.call('EXISTS', KEYS[2]) == 1 then wake_one(KEYS[3]) end
return 1
