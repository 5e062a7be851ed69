-- Release a lock of any kind regardless of its holder, and wake one waiter, or the first waiters in the fair queue.
-- USES fair_queue
-- USES waking
-- KEYS 1 lock  2 waiters  3 wake  4 line
-- ARGV 1 digest (the result of an earlier describe; the digest of one holder of a shared lock: release only this holder;
--   empty: release any holder)
-- Returns 1 released, 0 not held, -1 another holder has it now; {1, id, …} as fair_release.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == 'string' and redis.call('GET', KEYS[1]) == 'reserved' then return 0 end
local one -- the only holder to release, of several
if ARGV[1] ~= '' then
  local holders = kind == 'string' and {redis.call('GET', KEYS[1])}
    or kind == 'hash' and redis.call('HKEYS', KEYS[1])
    or {}
  table.sort(holders)
  if redis.sha1hex(table.concat(holders, '\n')) ~= ARGV[1] then
    for _, holder in ipairs(kind == 'hash' and holders or {}) do
      if redis.sha1hex(holder) == ARGV[1] then one = holder end
    end
    if not one then return -1 end
  end
end
local reply = first_waiters(not one)
if one then redis.call('HDEL', KEYS[1], one) else redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[2]) == 1 then
  if kind == 'string' then redis.call('SET', KEYS[1], 'reserved', 'PX', 100) end -- as free_mutex in waking
  if not reply then wake_one(KEYS[3]) end
end
return reply or 1
