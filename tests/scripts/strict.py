"""A prologue for scripts: refuses a command with a key that is not in KEYS, as strict servers do."""

STRICT = b"""
local redis = (function(redis)
  local declared, keyless = {}, {TIME = true, INFO = true}
  local several = {EXISTS = true, DEL = true, MGET = true}
  for _, key in ipairs(KEYS) do declared[key] = true end
  local function checked(run)
    return function(name, ...)
      for _, key in ipairs(keyless[name] and {} or several[name] and {...} or {(...)}) do
        if not declared[key] then error('not in KEYS: ' .. key) end
      end
      return run(name, ...)
    end
  end
  return setmetatable({call = checked(redis.call), pcall = checked(redis.pcall)}, {__index = redis})
end)(redis)
"""
