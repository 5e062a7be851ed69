-- Functions for the waiters of a lock without a fair queue. Scripts include this file with USES.
-- KEYS none
-- ARGV none
-- Returns nothing of its own.

-- List a waiter for `wait` ms.
local function enlist(waiters, waiter, now, wait)
  if type(redis.pcall('ZADD', waiters, now + wait, waiter)) ~= 'number' then
    redis.call('ZREM', waiters, waiter) -- first: a full server refuses a script whose first write needs memory
    redis.call('ZADD', waiters, now + wait, waiter)
  end
  redis.call('PEXPIRE', waiters, wait + 1000)
end

-- Wake one waiter. If the list already has a wake-up, no waiter is blocked on it, and another one is not needed.
local function wake_one(wake)
  if redis.call('RPUSH', wake, '1') == 1 then
    redis.call('PEXPIRE', wake, 10000)
  else
    redis.call('LPOP', wake)
  end
end

-- Free a mutex, and wake one waiter if there are waiters. The mutex is then free, but reserved for 100 ms: only waiters,
-- and clients that can't wait, may acquire it, so that no newcomer overtakes the waiter that was woken.
local function free_mutex(lock, waiters, wake)
  redis.call('DEL', lock)
  if redis.call('EXISTS', waiters) == 0 then return end
  redis.call('SET', lock, 'reserved', 'PX', 100)
  wake_one(wake)
end
