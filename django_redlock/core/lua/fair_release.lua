-- Release a mutex with a fair queue, if the token still holds it.
-- USES fair_queue
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake  4 line
-- ARGV 1 token  2 keep in ms (as mutex_release's)
-- Returns 1 released, 0 not held, -1 held by another token; {1, id, …} released, and the caller must wake the waiters
--   with these ids.
local held = redis.call('GET', KEYS[1])
if not held or held == 'reserved' then return 0 end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
if tonumber(ARGV[2] or 0) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('SET', KEYS[1], 'done' .. (string.match(held, ' .*$') or ''), 'PX', ARGV[2])
  return 1
end
local reply = first_waiters(true)
if reply then
  redis.call('PEXPIRE', KEYS[1], 100) -- as free_mutex in waking
  redis.call('SET', KEYS[1], 'reserved', 'PX', 100)
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  free_mutex(KEYS[1], KEYS[3])
else
  redis.call('DEL', KEYS[1])
end
return reply or 1
