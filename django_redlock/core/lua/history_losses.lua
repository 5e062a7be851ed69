-- Read which locks were lost in one minute. Changes nothing.
-- KEYS 1 minute (as in history_add.lua)
-- ARGV none
-- Returns {name, number of losses, number of force releases, name, …} for the names with any of them.
local all, found = redis.call('HGETALL', KEYS[1]), {}
for index = 1, #all, 2 do
  local counts = ' ' .. string.match(all[index + 1], '^[^\n]*')
  local lost, forced = string.match(counts, ' l=(%d+)'), string.match(counts, ' f=(%d+)')
  if (lost or forced) and all[index] ~= '' and all[index] ~= '}' then
    found[#found + 1] = all[index]
    found[#found + 1] = tonumber(lost or 0)
    found[#found + 1] = tonumber(forced or 0)
  end
end
return found
