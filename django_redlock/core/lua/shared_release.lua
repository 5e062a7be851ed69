-- Release a share of a lock with several shares, and wake one waiter.
-- KEYS 1 lock (as shared_acquire's or rw_acquire's)  2 waiters  3 wake  4 line (for a rwlock only)
-- ARGV 1 token  2 keep in ms (as mutex_release's)
-- Returns 1 released, 0 the token holds no share; {1, id, …} as fair_release.
local keep = tonumber(ARGV[2] or 0)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local shares = redis.call('HGETALL', KEYS[1])
local last, freed, kind, others = now, 0, '', {r = 0, w = 0}
for i = 1, #shares, 2 do
  local what, ends, mode = string.match(shares[i + 1], '^(%l+)@(%d+) (%l?)')
  if what ~= 'rwlock' then mode = '' end -- only a rwlock has a mode
  ends = tonumber(ends) or 0
  if string.sub(shares[i], 1, #ARGV[1]) ~= ARGV[1] then
    last = math.max(last, ends)
    if ends > now then others[mode] = (others[mode] or 0) + 1 end
  else
    if ends > now then freed, kind = 1, what end
    if ends > now and keep > 0 then
      last = math.max(last, now + keep)
      -- First: a full server refuses a script whose first write needs memory. No HDEL: see stop() in task_record.
      redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), keep))
      redis.call('HSET', KEYS[1], shares[i], what .. '@' .. now + keep .. (mode ~= '' and ' ' .. mode or '') .. ' -')
    else
      redis.call('HDEL', KEYS[1], shares[i])
    end
  end
end
if freed == 0 then return 0 end
if last > now then redis.call('PEXPIRE', KEYS[1], last - now) end
-- An rlock with other shares is not free: its shares belong to one holder. A writer that reads, too, still excludes all.
if kind == 'rlock' and others[''] or others.w > 0 then return 1 end
if redis.call('EXISTS', KEYS[2]) == 0 then return 1 end
if KEYS[4] then
  if keep > 0 then return 1 end
  -- USES fair_queue
  return first_waiters(others.r == 0) or 1
end
-- USES waking
wake_one(KEYS[3]) -- also if the share is kept, as in mutex_release
return 1
