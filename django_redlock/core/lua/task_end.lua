-- End a body: release the lock or queue the next delivery, and wake one waiter. Mark the delivery as ended.
-- USES task_record
-- KEYS 1 to 6 as task_record's  7 ended (set of numbers)
-- ARGV 1 token  2 task id  3 done ttl in ms  4 keep in ms  5 number  6 part of the owner
--   token: or what the tokens of all attempts begin with; empty: any token
--   task id: empty to end no body
--   done ttl: how long the delivery is marked as ended; 0 when it has not ended and may run again
--   keep: >0 to be queued again for that long, 0 to be removed
--   number: the delivery's number in the set, which expires as a whole
--   part of the owner: a text that the JSON of the body's owner must contain; empty: any owner
-- Returns 1 freed or queued again; {1, message} if the message of a postponed call must be sent; 0 the token did not
--   run the task.
local done_ttl = tonumber(ARGV[3])
if done_ttl > 0 then
  redis.call('SREM', KEYS[7], ARGV[5]) -- first: a server that is full lets a script go on that has begun to write
  redis.call('SADD', KEYS[7], ARGV[5])
  redis.call('PEXPIRE', KEYS[7], math.max(done_ttl, redis.call('PTTL', KEYS[7])))
end
local entry = read(ARGV[2])
if not entry or entry.state ~= 'running' or string.sub(entry.token, 1, #ARGV[1]) ~= ARGV[1]
  or not string.find(entry.owner, ARGV[6], 1, true) then return 0 end
if done_ttl > 0 and entry.next_delivery == entry.delivery then entry.next_delivery = '-' end -- a period: kept
stop(entry, ARGV[4])
wake()
return next_put_off()
