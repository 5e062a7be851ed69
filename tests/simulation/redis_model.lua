-- Redis, as far as the scripts use it. A value is a string, or a table of a `kind`:
-- a list of `items`, a zset of `scores`, or a hash of `values`, with its `names` in the order in which they came.
local data, ends -- of the server on which something happens: key -> value, key -> when it expires in ms
local micros, millis -- its time, which stands still while a script runs
local touched -- the keys that a script has written, where somebody wants to know
local hooks = {} -- what else a server does: info(section), pushed(key), wrote(changes)
local commands = {}
local OK = {ok = 'OK'}

local function text(value)
  return type(value) == 'number' and string.format('%.17g', value) or value
end

local function whole(value)
  local number = value + 0
  return number % 1 == 0 and number or error('not an integer: ' .. value)
end

local function copy(value)
  if type(value) ~= 'table' then return value end
  local other = {}
  for name, part in pairs(value) do other[name] = copy(part) end
  return other
end

local function wrote(key)
  if touched then touched[key] = true end
end

local function tell() -- what was written comes to a replica all at once, as a script does
  if not touched or next(touched) == nil then return end
  local changes = {}
  for key in pairs(touched) do changes[key] = {value = copy(data[key]), ending = ends[key]} end
  hooks.wrote(changes)
end

local function drop(key)
  data[key], ends[key] = nil, nil
end

local function live(key)
  local ending = ends[key]
  if ending and ending < millis then drop(key) end
  return data[key]
end

local function kind_of(value) -- a string has all that the string library has, and no kind
  return value and (value.kind or 'string') or 'none'
end

local function typed(key, kind)
  local value = live(key)
  if value and (value.kind or 'string') ~= kind then
    error({err = 'WRONGTYPE Operation against a key holding the wrong kind of value'})
  end
  return value
end

local function put(key, value) -- an empty one, where there is none yet
  data[key] = typed(key, value.kind) or value
  return data[key]
end

local function taken(key, left) -- from a list, zset or hash, of which this is left
  if next(left) == nil then drop(key) end
  wrote(key)
end

-- ── keys ────────────────────────────────────────────────────────────────────────────────────────

function commands.EXISTS(key, ...)
  local found = live(key) and 1 or 0
  return ... and found + commands.EXISTS(...) or found
end

function commands.DEL(key, ...)
  local found = live(key) and 1 or 0
  drop(key)
  wrote(key)
  return ... and found + commands.DEL(...) or found
end

function commands.TYPE(key)
  return {ok = kind_of(live(key))}
end

function commands.PTTL(key)
  if not live(key) then return -2 end
  return ends[key] and ends[key] - millis or -1
end

function commands.PEXPIRE(key, ms)
  if not live(key) then return 0 end
  ends[key] = millis + whole(ms)
  wrote(key)
  return 1
end

-- ── strings ─────────────────────────────────────────────────────────────────────────────────────

function commands.GET(key)
  return typed(key, 'string') or false
end

function commands.MGET(...)
  local values = {}
  for i, key in ipairs({...}) do values[i] = kind_of(live(key)) == 'string' and data[key] end
  return values
end

function commands.SET(key, value, option, ms, absent)
  assert((option == 'PX' or not option) and (absent == 'NX' or not absent), absent or option)
  if absent and live(key) then return false end
  data[key], ends[key] = text(value), option and millis + whole(ms)
  wrote(key)
  return OK
end

-- ── sorted sets ─────────────────────────────────────────────────────────────────────────────────

local function scores(key)
  local zset = typed(key, 'zset')
  return zset and zset.scores or {}
end

local function between(key, low, high)
  local found = {}
  low, high = tonumber(low), tonumber(high)
  for member, score in pairs(scores(key)) do
    if low <= score and score <= high then found[#found + 1] = member end
  end
  return found
end

function commands.ZADD(key, ...)
  local words = {...}
  local score, member = tonumber(words[#words - 1]), text(words[#words])
  local of = put(key, {kind = 'zset', scores = {}}).scores
  local new = not of[member]
  if new or words[1] ~= 'NX' then
    of[member] = score
    wrote(key)
  end
  return new and 1 or 0
end

function commands.ZSCORE(key, member)
  return text(scores(key)[member]) or false
end

function commands.ZRANGE(key, first, last)
  local of, members = scores(key), between(key, '-inf', '+inf')
  table.sort(members, function(one, other)
    return of[one] < of[other] or of[one] == of[other] and one < other
  end)
  return {unpack(members, first + 1, last < 0 and #members + last + 1 or math.min(last + 1, #members))}
end

function commands.ZREM(key, member)
  local of = scores(key)
  local found = of[member] and 1 or 0
  of[member] = nil
  taken(key, of)
  return found
end

function commands.ZCOUNT(key, low, high)
  return #between(key, low, high)
end

function commands.ZREMRANGEBYSCORE(key, low, high)
  local gone = between(key, low, high)
  for _, member in ipairs(gone) do commands.ZREM(key, member) end
  return #gone
end

-- ── hashes and lists ────────────────────────────────────────────────────────────────────────────

function commands.HGET(key, name)
  local hash = typed(key, 'hash')
  return hash and hash.values[name] or false
end

function commands.HKEYS(key)
  local hash = typed(key, 'hash')
  return hash and copy(hash.names) or {}
end

function commands.HGETALL(key)
  local both = {}
  for i, name in ipairs(commands.HKEYS(key)) do both[2 * i - 1], both[2 * i] = name, data[key].values[name] end
  return both
end

function commands.HSET(key, name, value)
  local hash = put(key, {kind = 'hash', names = {}, values = {}})
  local new = not hash.values[name]
  if new then table.insert(hash.names, name) end
  hash.values[name] = text(value)
  wrote(key)
  return new and 1 or 0
end

function commands.HDEL(key, name)
  local hash = typed(key, 'hash') or {names = {}, values = {}}
  local found = hash.values[name] and 1 or 0
  hash.values[name] = nil
  for i = found * #hash.names, 1, -1 do
    if hash.names[i] == name then table.remove(hash.names, i) end
  end
  taken(key, hash.names)
  return found
end

function commands.RPUSH(key, value)
  local items = put(key, {kind = 'list', items = {}}).items
  table.insert(items, text(value))
  wrote(key)
  hooks.pushed(key)
  return #items
end

function commands.LPOP(key)
  local list = typed(key, 'list')
  local first = list and table.remove(list.items, 1)
  if first then taken(key, list.items) end
  return first or false
end

-- ── the server ──────────────────────────────────────────────────────────────────────────────────

function commands.TIME()
  return {string.format('%d', micros / 1e6), string.format('%d', micros % 1e6)}
end

function commands.INFO(section)
  return hooks.info(section)
end

redis = {}

local declared = {} -- KEYS of the script that runs
local keyless, several = {TIME = true, INFO = true}, {EXISTS = true, DEL = true, MGET = true}

local function check(name, ...) -- a script may use its KEYS only
  if keyless[name] then return end
  for _, key in ipairs(several[name] and {...} or {(...)}) do
    if not declared[key] then error('not in KEYS: ' .. key, 0) end
  end
end

function redis.call(name, ...)
  check(name, ...)
  return commands[name](...)
end

function redis.pcall(name, ...)
  check(name, ...)
  local done, reply = pcall(commands[name], ...)
  if not done and type(reply) ~= 'table' then error(reply, 0) end -- that is a mistake in here
  return reply
end

function redis.error_reply(err)
  return {err = err}
end

local server = {hooks = hooks}

local function on(state, now)
  data, ends, micros, millis = state.data, state.ends, now, math.floor(now / 1000)
  touched = state.replicated and {}
end

function server.words(...) -- a table of KEYS that is made once
  return {...}
end

function server.run(state, now, script, keys, ...) -- with ARGV
  on(state, now)
  declared = {}
  for _, key in ipairs(keys) do declared[key] = true end
  local done, reply = pcall(script, keys, {...})
  if not done and type(reply) ~= 'table' then error(reply, 0) end
  tell()
  if type(reply) == 'table' and #reply > 1 then return unpack(reply) end -- faster than a table
  return reply
end

function server.pop(state, now, key) -- LPOP
  on(state, now)
  local list = live(key)
  local first = list and table.remove(list.items, 1)
  if first then taken(key, list.items) end
  tell()
  return first
end

function server.texts(state, now, key) -- what a key is about
  on(state, now)
  local value = live(key)
  if type(value) ~= 'table' then return {value} end
  return value.items or value.names or commands.ZRANGE(key, 0, -1)
end

function server.new(replicas)
  return {data = {}, ends = {}, replicated = replicas}
end

function server.load(state, from)
  state.data, state.ends = copy(from.data), copy(from.ends)
end

function server.apply(state, changes)
  for key, change in pairs(changes) do state.data[key], state.ends[key] = copy(change.value), change.ending end
end

server.copy = copy
return server
