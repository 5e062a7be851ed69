-- Put before another script on a server to which a Cluster is moving the slot. Keys that the script reaches by pcall are
-- left alone unless they are keys of the request: a key written here could not be moved here any more.
-- KEYS none
-- ARGV none
-- Returns nothing of its own.
local redis = (function(redis)
  local asked = {}
  for _, key in ipairs(KEYS) do asked[key] = true end
  local function pcall_asked(name, key, ...)
    if asked[key] then return redis.pcall(name, key, ...) end
    return {err = 'elsewhere'}
  end
  return setmetatable({pcall = pcall_asked}, {__index = redis})
end)(redis)

