-- A function that makes fencing tokens. Scripts include this file with USES.
-- KEYS none
-- ARGV none
-- Returns nothing of its own.

-- Return a number that is larger than the numbers in all keys `fences`, and store it in these keys for a day.
local function next_fence(fences, micros)
  local fence = micros
  for _, key in ipairs(fences) do fence = math.max(fence, (tonumber(redis.call('GET', key)) or 0) + 1) end
  for _, key in ipairs(fences) do redis.call('SET', key, string.format('%.0f', fence), 'PX', 86400000) end
  return fence
end
