-- A body has ended: free the lock or queue what comes next, remember that this sending is done, and wake one waiter.
-- USES fair_queue
-- KEYS 1 lock (as mutex_release's)  2 done (of this sending; absent when task_done has written it)
-- ARGV 1 token  2 task id  3 sending  4 remember in ms  5 keep in ms
--   remember: 0 if it has not run to its end and may run again; keep: >0 to be queued again, for its owner
-- Returns 1 freed or queued again, 0 it was not this token's any more.
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
if KEYS[2] and ARGV[4] ~= '0' then
  redis.call('DEL', KEYS[2]) -- first: a server that is full lets go on what has begun to write
  redis.call('SET', KEYS[2], 'ended', 'PX', ARGV[4])
end
local value = redis.call('HGET', KEYS[1], ARGV[2])
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local _, token, sending, due, following, life, owner = string.match(value or '', pattern)
if token ~= ARGV[1] or tonumber(due) <= millis then return 0 end
if tonumber(life) <= millis then following = '-' end
if following == '-' and tonumber(ARGV[5]) > 0 then
  following, life = sending, string.format('%.0f', millis + ARGV[5])
end
if following == '-' then
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  -- First: a server that is full lets go on what has begun to write. Without HDEL, since a key that has gone while its
  -- slot moves can't be written again.
  redis.call('PEXPIREAT', KEYS[1], math.max(redis.call('PTTL', KEYS[1]) + millis, tonumber(life)))
  redis.call('HSET', KEYS[1], ARGV[2], table.concat({'queued', '-', following, life, '-', '0', owner}, ' '))
end
if redis.pcall('EXISTS', KEYS[1] .. ':waiters') == 1 then wake_one(KEYS[1]) end
return 1
