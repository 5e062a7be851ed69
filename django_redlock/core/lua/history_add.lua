-- Add the events of one process to a minute of the history.
-- KEYS 1 minute (hash: "KIND NAME" -> number of events, "events NAME" -> the last events, each a line)
-- ARGV 1 ttl in ms  2 most fields  3 most events of a name (ten times more of "")  4 a JSON list: name, kind, number, …
--      The kind "events" has lines instead of a number, and comes first. The name "" counts all names.
-- Returns the number of values left out because their name is new and the hash has too many fields.
local most, kept, added, left_out = tonumber(ARGV[2]), tonumber(ARGV[3]), cjson.decode(ARGV[4]), 0
for index = 1, #added, 3 do
  local name, kind, value = added[index], added[index + 1], added[index + 2]
  local field = kind .. ' ' .. name
  if name ~= '' and redis.call('HEXISTS', KEYS[1], 'events ' .. name) == 0 and redis.call('HLEN', KEYS[1]) >= most then
    left_out = left_out + 1
  elseif kind == 'events' then
    local lines = (redis.call('HGET', KEYS[1], field) or '') .. value
    local _, number = string.gsub(lines, '\n', '\n')
    lines = string.gsub(lines, '[^\n]*\n', '', math.max(0, number - (name == '' and 10 * kept or kept)))
    redis.call('HSET', KEYS[1], field, lines)
  else
    redis.call('HINCRBY', KEYS[1], field, value)
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return left_out
