-- The process that ran a task has died: queue it again for its owner, until it is known whether the message comes back.
-- USES fair_queue
-- KEYS 1 lock (as mutex_release's)  2 done (of this sending; absent when task_done has deleted it)
-- ARGV 1 task id  2 process  3 keep in ms
--   process: a part of the owner's JSON, its host and pid; keep: 0 where no task is queued
-- Returns 1 freed or queued again, 0 it was not running there.
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
if KEYS[2] then redis.call('DEL', KEYS[2]) end -- a result that never arrived: when the message comes back it runs again
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local value = redis.call('HGET', KEYS[1], ARGV[1])
local state, _, sending, _, following, life, owner = string.match(value or '', pattern)
if state ~= 'running' or not string.find(owner, ARGV[2], 1, true) then return 0 end
if tonumber(life) <= millis then following, life = sending, string.format('%.0f', millis + ARGV[3]) end
if tonumber(life) > millis then
  redis.call('HSET', KEYS[1], ARGV[1], table.concat({'queued', '-', following, life, '-', '0', owner}, ' '))
  redis.call('PEXPIREAT', KEYS[1], math.max(redis.call('PTTL', KEYS[1]) + millis, tonumber(life)))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
if redis.pcall('EXISTS', KEYS[1] .. ':waiters') == 1 then wake_one(KEYS[1]) end
return 1
