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

-- List a client that is refused, or remove it after its last try. `wait`: as mutex_acquire's.
local function refuse(waiters, waiter, now, wait)
  if math.abs(wait) > 1 then
    redis.call('ZREMRANGEBYSCORE', waiters, '-inf', now)
    enlist(waiters, waiter, now, math.abs(wait))
  elseif wait < 0 then
    redis.call('ZREM', waiters, waiter)
  end
end

-- Wake one waiter. If the list already has a wake-up, no waiter is blocked on it, and another one is not needed.
local function wake_one(wake)
  if redis.call('RPUSH', wake, '1') == 1 then
    redis.call('PEXPIRE', wake, 10000)
  else
    redis.call('LPOP', wake)
  end
end

-- Free a mutex that has waiters, and wake one. The mutex is then reserved for 100 ms: only waiters, and clients that
-- can't wait, may acquire it, so that no newcomer overtakes the waiter that was woken. The key is never absent between:
-- a Cluster that moves the slot would refuse to set it.
local function free_mutex(lock, wake)
  redis.call('PEXPIRE', lock, 100) -- first: a full server refuses a script whose first write needs memory
  redis.call('SET', lock, 'reserved', 'PX', 100)
  wake_one(wake)
end
