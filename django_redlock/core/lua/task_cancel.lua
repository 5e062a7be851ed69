-- Remove the record of a queued task that will not run: it was not sent, was revoked or has expired. Never a running one.
-- USES task_record
-- KEYS 1 lock (as mutex_release's)
-- ARGV 1 task id  2 delivery id (empty: any)
-- Returns 1 removed, 0 it was not queued.
local entry = read(ARGV[1])
if not entry then return 0 end
local running = entry.state == 'running'
local delivery = running and entry.next_delivery or entry.delivery
if delivery == '-' or ARGV[2] ~= '' and ARGV[2] ~= delivery then return 0 end
if running then
  -- First, and with no effect: a server that is full lets a script go on that has begun to write.
  redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
  write(entry.task, entry.state, entry.token, entry.delivery, entry.due, '-', 0, entry.owner)
  return 1
end
redis.call('HDEL', KEYS[1], ARGV[1])
wake()
return 1
