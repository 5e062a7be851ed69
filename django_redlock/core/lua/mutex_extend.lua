-- Replace the rest of the leases of one or several mutexes, each if its token still holds it.
-- KEYS 1 lock  2 fence (with fencing only), and so on of each other lock
-- ARGV 1 ttl in ms  2 keep (1: never shorten the time for which the key stays, else 0)  3 token of the first lock, and so on of each other lock
-- Returns the number of locks if all were extended, 0 at least one is not held, -1 at least one is held by another token.
local number = #ARGV - 2
local step, reply = #KEYS / number, number
for i = 3, #ARGV do
  local lock, token = KEYS[(i - 3) * step + 1], ARGV[i]
  local held = redis.call('GET', lock)
  if not held or held == 'reserved' then
    reply = math.min(reply, 0)
  elseif string.sub(held, 1, #token) ~= token then
    reply = -1
  else
    -- A write in any case: after a script that only reads, WAIT counts replicas that have confirmed earlier writes.
    redis.call('PEXPIRE', lock, ARGV[2] == '1' and math.max(redis.call('PTTL', lock), ARGV[1]) or ARGV[1])
    if step == 2 then redis.call('PEXPIRE', KEYS[(i - 2) * 2], 86400000) end
  end
end
return reply
