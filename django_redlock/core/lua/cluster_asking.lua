-- Put before another script on a server to which a Cluster is moving the slot. That script's calls by pcall fail for
-- keys that are not keys of the request: the Cluster could not move a key that already exists here.
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

