-- A body has ended: free the lock or queue what comes next, remember that this sending is done, and wake one waiter.
-- KEYS 1 lock  2 waiters  3 wake  4 done (of this sending)
-- ARGV 1 token  2 task id  3 sending  4 remember in ms  5 keep in ms
--   remember: 0 if it has not run to its end and may run again; keep: >0 to be queued again, for its owner
-- Returns 1 freed or queued again, 0 it was not this token's any more.
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
if ARGV[4] ~= '0' then
  redis.call('DEL', KEYS[4]) -- first: a full server refuses a script whose first write needs memory
  redis.call('SET', KEYS[4], 'ended', 'PX', ARGV[4])
end
local value = redis.call('HGET', KEYS[1], ARGV[2])
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local _, token, sending, due, following, life, owner = string.match(value or '', pattern)
if token ~= ARGV[1] or tonumber(due) <= millis then return 0 end
if tonumber(life) <= millis then following = '-' end
if following == '-' and tonumber(ARGV[5]) > 0 then
  following, life = sending, string.format('%.0f', millis + ARGV[5])
end
local ends = following ~= '-' and redis.call('PTTL', KEYS[1]) + millis -- before it may go
redis.call('HDEL', KEYS[1], ARGV[2])
if following ~= '-' then
  redis.call('HSET', KEYS[1], ARGV[2], table.concat({'queued', '-', following, life, '-', '0', owner}, ' '))
  redis.call('PEXPIREAT', KEYS[1], math.max(ends, tonumber(life)))
end
if redis.call('EXISTS', KEYS[2]) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.pcall('RPUSH', KEYS[3], '1')
  redis.pcall('PEXPIRE', KEYS[3], 10000)
end
return 1
