-- Replace the rest of a running task's lease, if the token still runs it.
-- KEYS 1 lock (alone, as mutex_extend's)
-- ARGV 1 token  2 ttl in ms
-- Returns 1 extended, 0 no longer its.
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local mine, last = {}, 0
for i = 1, #all, 2 do
  local state, token, sending, due, rest, life = string.match(all[i + 1], '^(%l+) (%S+) (%S+) (%d+) (%S+ (%d+) .*)$')
  due = tonumber(due)
  if token == ARGV[1] and due > millis then
    due = millis + ARGV[2]
    mine = {all[i], table.concat({state, token, sending, string.format('%.0f', due), rest}, ' ')}
  end
  last = math.max(last, due, tonumber(life))
end
if #mine == 0 then return 0 end
redis.call('PEXPIREAT', KEYS[1], last) -- first: a full server refuses a script whose first write needs memory
redis.call('HSET', KEYS[1], unpack(mine))
return 1
