-- Queue a task, unless as many rivals as are allowed stand in its way, or one queued under its id. Idempotent per sending.
-- KEYS 1 lock
-- ARGV 1 task id  2 sending  3 owner (JSON)  4 life in ms  5 limit  6 rivals  7 own  8 replace  9 remember in ms
--   rivals: the states of others that count; own: "1" for a retry by the owner, who passes; replace: "1" if a queued one
--   gives way; remember: how long at least that one is known as replaced: as long as it would have counted as queued
-- Returns the server's time in µs; refused {0, life left in ms, time, owner in the way}.
-- The lock is a hash: task id -> state, run token, sending, end in ms, next sending, its end in ms, owner (JSON).
-- One that runs and has a next sending counts as queued too, and is queued when its lease has run out.
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
local micros = now[1] * 1000000 + now[2]
local ends = string.format('%.0f', millis + ARGV[4])
local last, rivals, mine, rival, body, twin = tonumber(ends), 0, nil, nil, nil, nil
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local state, token, sending, due, following, life, owner = string.match(all[i + 1], pattern)
  local pending = tonumber(life) > millis
  if tonumber(due) <= millis and pending then
    state, token, sending, due, pending = 'queued', '-', following, life, false
  end
  if tonumber(due) <= millis then
    redis.call('HDEL', KEYS[1], all[i])
  else
    local entry = {all[i], state, token, sending, due, owner}
    last = math.max(last, tonumber(due), tonumber(life))
    if all[i] == ARGV[1] and state == 'running' then body = entry end
    if all[i] == ARGV[1] and (ARGV[7] == '1' or sending == ARGV[2]) then
      mine = entry
    elseif string.find(ARGV[6], state, 1, true) or pending and string.find(ARGV[6], 'queued', 1, true) then
      rivals = rivals + 1
      if all[i] == ARGV[1] and (state == 'queued' or pending) then twin = entry end
      if not rival or ARGV[8] == '1' and state == 'queued' then rival = entry end
    end
  end
end

if not mine and (twin or rivals >= tonumber(ARGV[5])) then
  if ARGV[8] ~= '1' then rival = twin or rival end
  if ARGV[8] ~= '1' or rival[2] ~= 'queued' then
    return {0, rival[5] - millis, micros, '{"state":"' .. rival[2] .. '",' .. string.sub(rival[6], 2)}
  end
  redis.call('HDEL', KEYS[1], rival[1])
  redis.call('SET', KEYS[1] .. ':done:' .. rival[4], 'replaced', 'PX', math.max(rival[5] - millis, tonumber(ARGV[9])))
end
local record = {'queued', '-', ARGV[2], ends, '-', '0', ARGV[3]}
if body then record = {'running', body[3], body[4], body[5], ARGV[2], ends, body[6]} end -- what it becomes when it ends
redis.call('HSET', KEYS[1], ARGV[1], table.concat(record, ' '))
redis.call('PEXPIREAT', KEYS[1], last)
return micros
