"""A prologue for scripts: refuses a command with a key that is not in KEYS, as strict servers do."""

from django_redlock.client import commands
from django_redlock.client.fanout import in_flight
from django_redlock.client.resp import encode_eval


def be_strict(monkeypatch):
    """Let each script that this process sends begin with the prologue."""

    def strict(call):
        return encode_eval(call._replace(script=call.script._replace(source=STRICT + call.script.source)))

    for module in commands, in_flight:
        monkeypatch.setattr(module, "encode_evalsha", strict)


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
