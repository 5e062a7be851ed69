-- Add the counts of one process in a minute to the counts of the other processes.
-- KEYS 1 minute (hash: lock's name -> counts like "a=2 w7=1", then the last events, each a line of JSON)
-- ARGV 1 ttl in ms  2 most names  3 most events of a name  4 a JSON list: name, text, name, text, …
-- Returns the number of names that were counted as "}" because the minute has too many names.
local most, kept, added, others = tonumber(ARGV[2]), tonumber(ARGV[3]), cjson.decode(ARGV[4]), 0

local function put(name, text)
  local counts, order, lines = {}, {}, {}
  for line in string.gmatch((redis.call('HGET', KEYS[1], name) or '') .. '\n' .. text, '[^\n]+') do
    if string.sub(line, 1, 1) == '[' then
      lines[#lines + 1] = line
    else
      for what, number in string.gmatch(line, '(%w+)=(%d+)') do
        if not counts[what] then order[#order + 1] = what end
        counts[what] = (counts[what] or 0) + tonumber(number)
      end
    end
  end
  for index, what in ipairs(order) do order[index] = what .. '=' .. string.format('%.0f', counts[what]) end
  table.sort(lines) -- each line begins with the time of the event
  local last = table.concat(lines, '\n', math.max(1, #lines - kept + 1))
  redis.call('HSET', KEYS[1], name, table.concat(order, ' ') .. '\n' .. last)
end

for index = 1, #added, 2 do
  local name = added[index]
  if name ~= '' and name ~= '}' and redis.call('HEXISTS', KEYS[1], name) == 0 and redis.call('HLEN', KEYS[1]) > most then
    name, others = '}', others + 1
  end
  put(name, added[index + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return others
