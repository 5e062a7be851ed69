-- Start the body of a queued task, or of a task without a record. Idempotent per token.
-- USES task_record
-- KEYS 1 to 6 as task_record's  7 ended (set of numbers)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 task id  5 delivery id  6 limit  7 rivals  8 period in ms  9 wait  10 number
--   rivals: the states in which other tasks block this task; empty to restore a running body
--   period: >0: also counts as queued for this time, while running and after; a queued task keeps the end of its record
--   wait: ms for which a refused task is listed as a waiter. 0: not listed; negative: was listed before; -1: last try,
--   after which the task is no longer listed
--   number: the delivery's number in the set
-- Returns the server's time in µs; refused {0, time left in ms, time, blocking owner with its state}. A delivery that
--   has ended or was replaced before never starts: {0, -3, time, {"state": "ended"} or {"state": "replaced"}}.
local wait = tonumber(ARGV[9])
local place = string.sub(ARGV[1], 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire

local function never(state)
  -- The task waits no longer. It may have received the wake-up for the next waiter.
  if wait < 0 and redis.call('ZREM', KEYS[2], place) == 1 then wake() end
  return {0, -3, now_us, '{"state":"' .. state .. '"}'}
end

if ARGV[7] ~= '' and redis.call('SISMEMBER', KEYS[7], ARGV[10]) == 1 then return never('ended') end
if is_replaced(ARGV[5]) then return never('replaced') end

local blocker, mine, last = find_blocker(ARGV[4], ARGV[1], ARGV[7], ARGV[6])
if blocker then
  refuse(KEYS[2], place, now, wait)
  return refusal(blocker)
end

if wait < 0 then redis.call('ZREM', KEYS[2], place) end
local due, next_delivery, next_due = now + ARGV[3], '-', 0
if mine and mine.state == 'running' then
  due = math.max(due, mine.due) -- as in mutex_acquire
  next_delivery, next_due = mine.next_delivery, mine.next_due
elseif ARGV[8] ~= '0' then
  next_delivery, next_due = ARGV[5], mine and mine.due or now + ARGV[8]
end
write(ARGV[4], 'running', ARGV[1], ARGV[5], due, next_delivery, next_due, ARGV[2])
redis.call('PEXPIREAT', KEYS[1], math.max(last, due, next_due))
redis.call('HDEL', KEYS[4], ARGV[5]) -- last: a full server lets a script go on that has begun to write
return now_us
