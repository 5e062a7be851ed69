-- Queue a task, unless `limit` other tasks or a queued task with the same id block it. Idempotent per delivery id.
-- USES task_record
-- KEYS 1 lock; with replace: 1 to 6 as task_record's
-- ARGV 1 task id  2 delivery id  3 owner (JSON)  4 ttl in ms  5 limit  6 rivals  7 own  8 replace  9 done ttl in ms
--   rivals: the states in which other tasks block this task; own: "1" for a retry by the owner, which is always queued;
--   replace: "1" to replace a queued task, whose delivery is marked as replaced for at least the done ttl
-- Returns the server's time in µs; refused {0, time left in ms, time, blocking owner with its state}.
local last, rivals, mine, rival, body, twin, replaced = now + ARGV[4], 0, nil, nil, nil, nil, '-'
for _, entry in ipairs(read_all()) do
  local same = entry.task == ARGV[1]
  last = math.max(last, entry.due, entry.next_due)
  if same and entry.state == 'running' then body = entry end
  if same and (ARGV[7] == '1' or entry.delivery == ARGV[2]) then
    mine = entry
  elseif counts(entry, ARGV[6]) then
    rivals = rivals + 1
    if same and counts(entry, 'queued') then twin = entry end
    if not rival or ARGV[8] == '1' and entry.state == 'queued' then rival = entry end
  end
end

if not mine and (twin or rivals >= tonumber(ARGV[5])) then
  if ARGV[8] ~= '1' then return refusal(twin or rival) end
  if rival.state ~= 'queued' or rival.delivery == '-' then return refusal(rival) end -- '-': a period goes on
  redis.call('HDEL', KEYS[1], rival.task)
  local ttl = math.max(rival.due - now, ARGV[9])
  redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', now)
  redis.call('ZADD', KEYS[6], now + ttl, rival.delivery)
  redis.call('PEXPIRE', KEYS[6], math.max(redis.call('PTTL', KEYS[6]), ttl))
  redis.call('HDEL', KEYS[4], rival.delivery)
  redis.call('LREM', KEYS[5], 1, rival.delivery)
  replaced = rival.delivery
elseif mine and mine.state == 'queued' and mine.delivery == ARGV[2] then
  replaced = mine.next_delivery
end
if body and body.delivery == ARGV[2] then return now_us end -- this request comes late: the task has started
if body then -- queued when the body has ended
  write(ARGV[1], 'running', body.token, body.delivery, body.due, ARGV[2], now + ARGV[4], body.owner)
else
  write(ARGV[1], 'queued', '-', ARGV[2], now + ARGV[4], replaced, 0, ARGV[3])
end
redis.call('PEXPIREAT', KEYS[1], last)
return now_us
