-- Functions for the records of tasks in the lock of a task. Scripts include this file with USES.
-- KEYS 1 lock  2 waiters  3 wake  4 messages  5 order  6 replaced, of the script that uses this
--   messages (hash: delivery id -> message of a postponed call), order (list of their delivery ids, and of calls that
--   have started since), replaced (zset: delivery id -> end in ms)
-- ARGV none
-- Returns nothing of its own.
-- The lock is a hash: task id -> state, run token, delivery id, end in ms, next delivery id, its end in ms, owner (JSON).
-- A running task with a next delivery counts as queued too. It is queued with that delivery when its lease has ended.
-- The next delivery of a queued task is the delivery that it has replaced, without an end.
-- With a period, the next delivery is the delivery itself, and '-' in the queued record after the end of the body.
-- USES waking
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now_us = clock[1] * 1000000 + clock[2]

-- Returns the entry of a task from its field in the hash; nil if there is no field or the entry has expired.
local function parse(task, value)
  local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
  local state, token, delivery, due, next_delivery, next_due, owner = string.match(value or '', pattern)
  if not state then return nil end
  due, next_due = tonumber(due), tonumber(next_due)
  if due <= now then
    if next_due <= now then return nil end
    state, token, delivery, due, next_delivery, next_due = 'queued', '-', next_delivery, next_due, '-', 0
  end
  return {task = task, state = state, token = token, delivery = delivery, due = due,
          next_delivery = next_delivery, next_due = next_due, owner = owner}
end

local function read(task)
  return parse(task, redis.call('HGET', KEYS[1], task))
end

-- Returns all live entries, and removes expired entries from the hash.
local function read_all()
  local entries, all = {}, redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local entry = parse(all[i], all[i + 1])
    if entry then entries[#entries + 1] = entry else redis.call('HDEL', KEYS[1], all[i]) end
  end
  return entries
end

local function write(task, state, token, delivery, due, next_delivery, next_due, owner)
  local words = {state, token, delivery, string.format('%.0f', due), next_delivery, string.format('%.0f', next_due), owner}
  redis.call('HSET', KEYS[1], task, table.concat(words, ' '))
end

-- Whether an entry is in one of `states`. A running task with a next delivery is also queued.
local function counts(entry, states)
  return string.find(states, entry.state, 1, true) or entry.next_due > now and string.find(states, 'queued', 1, true)
end

local function refusal(entry)
  return {0, entry.due - now, now_us, '{"state":"' .. entry.state .. '",' .. string.sub(entry.owner, 2)}
end

local function is_replaced(delivery)
  return (tonumber(redis.call('ZSCORE', KEYS[6], delivery)) or 0) > now
end

-- Returns the entry that refuses the start of a task (nil: none), the entry of the task, and the end of the last other.
-- A task that is queued itself has its place among the queued, so only bodies refuse it, which tasks of other modes run.
local function find_blocker(task, token, states, limit)
  local mine, rivals, rival, bodies, body, last = nil, 0, nil, 0, nil, 0
  for _, entry in ipairs(read_all()) do
    if entry.task == task then
      mine = entry
    else
      last = math.max(last, entry.due, entry.next_due)
      if counts(entry, states) then
        rivals, rival = rivals + 1, rival or entry
        if string.find(states, 'running', 1, true) and entry.state == 'running' then
          bodies, body = bodies + 1, body or entry
        end
      end
    end
  end
  if mine and mine.state == 'running' then return mine.token ~= token and mine or nil, mine, last end
  if mine and string.find(states, 'queued', 1, true) then rivals, rival = bodies, body end
  return rivals >= tonumber(limit) and rival or nil, mine, last
end

-- Returns the reply of a script that has ended a body: 1, or {1, message} with the message that was postponed first.
local function next_put_off()
  while true do
    local delivery = redis.call('LPOP', KEYS[5])
    if not delivery then return 1 end
    local message = redis.call('HGET', KEYS[4], delivery)
    if message then
      redis.call('HDEL', KEYS[4], delivery)
      return {1, message}
    end
  end
end

local function wake()
  if redis.call('EXISTS', KEYS[2]) == 1 then wake_one(KEYS[3]) end
end

-- End a running task: queue it with its next delivery, or for `keep` ms with its last delivery, or else remove it.
local function stop(entry, keep)
  local delivery, due = entry.next_delivery, entry.next_due
  if due <= now then delivery, due = entry.delivery, now + keep end
  if due <= now then
    redis.call('HDEL', KEYS[1], entry.task)
  else
    -- First: a full server refuses a script whose first write needs memory.
    redis.call('PEXPIREAT', KEYS[1], math.max(redis.call('PTTL', KEYS[1]) + now, due))
    write(entry.task, 'queued', '-', delivery, due, '-', 0, entry.owner)
  end
end

