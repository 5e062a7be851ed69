-- End a body: free the lock or queue the next delivery, remember that this delivery has ended, and wake one waiter.
-- USES task_record
-- USES task_ended
-- KEYS 1 to 6 as task_record's  7 ended (set of numbers)
-- ARGV 1 token, or what the tokens of all attempts begin with  2 task id  3 done ttl in ms  4 keep in ms  5 number
--   number: the delivery's number in the set
--   done ttl: how long the delivery is known as ended; 0 when it has not ended and may run again
--   keep: >0 to be queued again for that long, 0 to be removed
-- Returns 1 freed or queued again; {1, message} if a call was put off, whose message is to be sent; 0 the token did not
--   run the task.
if ARGV[3] ~= '0' then mark_ended(KEYS[7], ARGV[5], ARGV[3]) end
local entry = read(ARGV[2])
if not entry or string.sub(entry.token, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
if ARGV[3] ~= '0' and entry.next_delivery == entry.delivery then entry.next_delivery = '-' end -- a period: kept
stop(entry, ARGV[4])
wake()
return next_put_off()
