-- Extend the leases of one or several mutexes to ttl from now, each if the token still holds it.
-- KEYS 1 lock  2 fence (with fencing only), and so on of each other lock
-- ARGV 1 token  2 ttl in ms  3 number of locks  4 keep (1: never shorten the time for which the key stays)
--   Absent: 1 for the number, no keep.
-- Returns 1 if all were extended, 0 at least one is not held, -1 at least one is held by another token.
local token, ttl, step, reply = ARGV[1], ARGV[2], #KEYS / (ARGV[3] or 1), 1
for i = 1, #KEYS, step do
  local lock = KEYS[i]
  local held = redis.call('GET', lock)
  if not held or held == 'reserved' then
    reply = math.min(reply, 0)
  elseif string.sub(held, 1, #token) ~= token then
    reply = -1
  else
    -- A write in any case: after a script that only reads, WAIT counts replicas that have confirmed earlier writes.
    redis.call('PEXPIRE', lock, ARGV[4] and math.max(redis.call('PTTL', lock), ttl) or ttl)
    if step == 2 then redis.call('PEXPIRE', KEYS[i + 1], 86400000) end
  end
end
return reply
