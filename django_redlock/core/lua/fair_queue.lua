-- Functions for the fair queue of a lock, which grants in order of arrival. Scripts include this file with USES.
-- KEYS 1 lock: of the script that uses this. Beside it, with the same hash tag:
--   <lock>:waiters, as in the acquire scripts
--   <lock>:line (zset: mode, space, entry in `waiters` -> µs of arrival; mode w excludes all others, r excludes w)
--   <lock>:wake:<first 16 characters of the token> (list: wake-ups of one waiter)
-- ARGV none
-- Returns nothing of its own.
-- A waiter is alive until its entry in `waiters` lapses. A waiter that tries again within ten seconds keeps its place.
local LINE, WAITERS = KEYS[1] .. ':line', KEYS[1] .. ':waiters'

-- Returns the milliseconds after which the first live waiter in front of `place` counts as gone; nil if there is none.
-- A reader is blocked by writers only.
local function ahead(place, mode, now)
  local rank = 0
  while true do
    local each = redis.call('ZRANGE', LINE, rank, rank)[1]
    if not each or each == place then return nil end
    local lapses = tonumber(redis.call('ZSCORE', WAITERS, string.sub(each, 3)))
    if not lapses then
      redis.call('ZREM', LINE, each)
    elseif lapses > now and (mode == 'w' or string.sub(each, 1, 1) == 'w') then
      return lapses - now
    else
      rank = rank + 1
    end
  end
end

-- Add the waiter to the queue, or keep its place. The waiter is alive for `wait` ms.
local function stand(place, micros, wait)
  local now = math.floor(micros / 1000)
  redis.call('ZREMRANGEBYSCORE', WAITERS, '-inf', now - 10000)
  redis.call('ZADD', WAITERS, now + wait, string.sub(place, 3))
  redis.call('PEXPIRE', WAITERS, wait + 10000)
  redis.call('ZADD', LINE, 'NX', micros, place)
  redis.call('PEXPIRE', LINE, wait + 10000)
end

local function leave(place)
  redis.call('ZREM', WAITERS, string.sub(place, 3))
  redis.call('ZREM', LINE, place)
end

-- Wake the first waiters in the queue: all readers in front of the first writer, or a writer that is first if the lock
-- is free. Returns whether a live waiter is queued.
local function wake_line(free, lock)
  local line = lock .. ':line'
  if redis.pcall('EXISTS', line) ~= 1 then return false end -- the key may be on another server: see mutex_extend
  local clock = redis.call('TIME')
  local now, alive, rank = clock[1] * 1000 + math.floor(clock[2] / 1000), false, 0
  while true do
    local each = redis.call('ZRANGE', line, rank, rank)[1]
    if not each then return alive end
    local lapses = tonumber(redis.pcall('ZSCORE', lock .. ':waiters', string.sub(each, 3)))
    if lapses and lapses > now then
      local writes = string.sub(each, 1, 1) == 'w'
      if writes and (alive or not free) then return true end
      local wake = lock .. ':wake:' .. string.sub(each, 3, 18)
      if redis.pcall('EXISTS', wake) == 0 then
        redis.pcall('RPUSH', wake, '1')
        redis.pcall('PEXPIRE', wake, 1000)
      end
      if writes then return true end
      alive = true
    end
    rank = rank + 1
  end
end

-- Wake one waiter of a lock without a fair queue. If the list already has a wake-up, no waiter is blocked on the list,
-- and a second wake-up is not needed. If the push fails, the lock is free anyway, and waiters try again after a while.
local function wake_one(lock)
  local length = redis.pcall('RPUSH', lock .. ':wake', '1')
  if length == 1 then
    redis.pcall('PEXPIRE', lock .. ':wake', 10000)
  elseif type(length) == 'number' then
    redis.pcall('LPOP', lock .. ':wake')
  end
end

-- Free a mutex and wake its first waiters. `queues`: how many of the keys `waiters` and `line` exist. A mutex with
-- waiters is free, but stays reserved for 100 ms: only waiters, and clients that can't wait, may acquire it, so that no
-- newcomer overtakes the waiter that was woken.
local function free_mutex(lock, queues)
  if queues ~= 1 and queues ~= 2 then -- no waiters, or a key is on another server: see mutex_extend
    redis.call('DEL', lock)
    return
  end
  if redis.pcall('SET', lock, 'reserved', 'PX', 100).err then redis.call('DEL', lock) end -- a full server
  if queues == 1 or not wake_line(true, lock) then wake_one(lock) end
end
