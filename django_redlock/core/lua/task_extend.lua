-- Extend the lease of a running task to ttl from now, if the token still runs the task.
-- USES task_record
-- KEYS 1 lock
-- ARGV 1 token  2 ttl in ms
-- Returns 1 extended, 0 the token no longer runs the task.
local mine, last = nil, 0
for _, entry in ipairs(read_all()) do
  if entry.token == ARGV[1] then
    mine = entry
    entry.due = now + ARGV[2]
  end
  last = math.max(last, entry.due, entry.next_due)
end
if not mine then return 0 end
redis.call('PEXPIREAT', KEYS[1], last) -- first: a full server refuses a script whose first write needs memory
write(mine.task, mine.state, mine.token, mine.delivery, mine.due, mine.next_delivery, mine.next_due, mine.owner)
return 1
