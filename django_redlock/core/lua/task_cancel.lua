-- Remove the record of a queued task that will not run because it was not sent, was revoked or has expired. A running
-- task keeps its record; only its next delivery is removed. The period of a task that runs or has run is kept. A task
-- that the delivery has replaced is no longer marked as replaced.
-- USES task_record
-- KEYS 1 to 6 as task_record's
-- ARGV 1 task id  2 delivery id (empty: any)
-- Returns 1 removed, 0 the task was not queued.
local entry = read(ARGV[1])
if not entry then return 0 end
local running = entry.state == 'running'
local delivery = running and entry.next_delivery or entry.delivery
if running and delivery == entry.delivery then return 0 end -- a period: a retry has another delivery
if delivery == '-' or ARGV[2] ~= '' and ARGV[2] ~= delivery then return 0 end
if running then
  -- A write without effect comes first: a full server refuses a script whose first write needs memory.
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  write(entry.task, entry.state, entry.token, entry.delivery, entry.due, '-', 0, entry.owner)
  return 1
end
redis.call('HDEL', KEYS[1], ARGV[1])
if ARGV[2] ~= '' and entry.next_delivery ~= '-' then redis.call('ZREM', KEYS[6], entry.next_delivery) end
wake()
return 1
