-- Functions for the fair queue of a lock, which grants in order of arrival. Scripts include this file with USES.
-- KEYS 1 lock  2 waiters  3 wake  4 line (zset: mode, space, entry in `waiters` -> µs of arrival), of the script that uses this
--   mode w excludes all others, r excludes w. Each waiter has its own list for wake-ups. A script does not get that list
--   in KEYS, so it returns the first 16 characters of the waiter's token, and its caller wakes the waiter.
-- ARGV none
-- Returns nothing of its own.
-- A waiter is alive until its entry in `waiters` expires. A waiter that tries again within ten seconds keeps its place.
local WAITERS, LINE = KEYS[2], KEYS[4]

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

local function leave(place)
  redis.call('ZREM', WAITERS, string.sub(place, 3))
  redis.call('ZREM', LINE, place)
end

-- Add a client that is refused to the queue, or keep its place. It is alive for `wait` ms. Or remove it after its last
-- try. `wait`: as mutex_acquire's.
local function refuse_in_queue(place, micros, wait)
  local now, alive = math.floor(micros / 1000), math.abs(wait)
  if wait == -1 then leave(place) end
  if alive <= 1 then return end
  redis.call('ZREMRANGEBYSCORE', WAITERS, '-inf', now - 10000)
  redis.call('ZADD', WAITERS, now + alive, string.sub(place, 3))
  redis.call('PEXPIRE', WAITERS, alive + 10000)
  redis.call('ZADD', LINE, 'NX', micros, place)
  redis.call('PEXPIRE', LINE, alive + 10000)
end

-- Return the reply of a script that has released the lock: {1, id, …} with the waiters that are first in the queue, or
-- nil if there are none. These are all readers in front of the first writer, or a writer that is first if the lock is free.
local function first_waiters(free)
  local clock = redis.call('TIME')
  local now, reply, rank = clock[1] * 1000 + math.floor(clock[2] / 1000), {1}, 0
  while true do
    local each = redis.call('ZRANGE', LINE, rank, rank)[1]
    if not each then break end
    local lapses = tonumber(redis.call('ZSCORE', WAITERS, string.sub(each, 3)))
    if lapses and lapses > now then
      local writes = string.sub(each, 1, 1) == 'w'
      if writes and (#reply > 1 or not free) then break end
      reply[#reply + 1] = string.sub(each, 3, 18)
      if writes then break end
    end
    rank = rank + 1
  end
  return #reply > 1 and reply or nil
end
