-- Release the share of a reader or writer, and wake the first waiters in the fair queue.
-- USES fair_queue
-- KEYS 1 lock (as rw_acquire's; alone, as mutex_release's)
-- ARGV 1 token  2 keep in ms (>0: keep it that much longer without a holder)
-- Returns 1 released, 0 the token holds no share.
local keep = tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local shares = redis.call('HGETALL', KEYS[1])
local last, freed, others = now, 0, {r = 0, w = 0}
for i = 1, #shares, 2 do
  local what, ends, how = string.match(shares[i + 1], '^(%l+)@(%d+) (%l?)')
  ends = tonumber(ends) or 0
  if string.sub(shares[i], 1, #ARGV[1]) ~= ARGV[1] then
    last = math.max(last, ends)
    if ends > now then others[how] = (others[how] or 0) + 1 end
  else
    if ends > now then freed = 1 end
    if ends > now and keep > 0 then
      last = math.max(last, now + keep)
      -- First: a full server refuses a script whose first write needs memory. No HDEL: see stop() in task_record.
      redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), keep))
      redis.call('HSET', KEYS[1], shares[i], what .. '@' .. now + keep .. ' ' .. how .. ' -')
    else
      redis.call('HDEL', KEYS[1], shares[i])
    end
  end
end
if freed == 0 then return 0 end
if last > now then redis.call('PEXPIRE', KEYS[1], last - now) end
if keep == 0 and others.w == 0 then wake_line(others.r == 0, KEYS[1]) end
return 1
