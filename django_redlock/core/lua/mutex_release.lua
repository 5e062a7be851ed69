-- Release each of one or several mutexes that the token holds, and wake one waiter of each.
-- KEYS 1 lock  2 waiters  3 wake, and so on of each other lock
-- ARGV 1 token  2 keep in ms (>0: the lock stays unavailable for this time, with "done" in place of the token)
--   3 how many of the locks it must have held
--   Absent: 0 for keep, 1 for the number.
-- Returns 1 released, 0 not held, -1 held by another token.
local freed, reply, keep = 0, 0, tonumber(ARGV[2] or 0)
for i = 1, #KEYS, 3 do
  local lock = KEYS[i]
  local held = redis.call('MGET', lock)[1] -- absent if the key has another type, which must not stop the script
  if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
    freed = freed + 1
    if keep > 0 then
      redis.call('PEXPIRE', lock, keep) -- first: a full server refuses a script whose first write needs memory
      redis.call('SET', lock, 'done' .. (string.match(held, ' .*$') or ''), 'PX', keep)
    end
    if redis.call('EXISTS', KEYS[i + 1]) == 1 then
      -- Defined only here, because most locks have no waiters: it takes a part of the 3.4 µs of a release.
      -- USES waking
      -- A waiter of a kept lock learns when it ends. Otherwise it would wait for the end of the lease.
      if keep > 0 then wake_one(KEYS[i + 2]) else free_mutex(lock, KEYS[i + 2]) end
    elseif keep <= 0 then
      redis.call('DEL', lock)
    end
  elseif held and held ~= 'reserved' then
    reply = -1
  end
end
return freed >= tonumber(ARGV[3] or 1) and 1 or reply
