-- A queued task, or one that nobody queued, begins to run. Idempotent per token.
-- KEYS 1 lock  2 waiters  3 done (of this sending)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 task id  5 sending  6 limit  7 rivals  8 becomes  9 wait
--   rivals: the states of others that count; becomes: "running", "queued" (stays as it is) or "free"
--   wait: the ms for which to queue when refused, 0 for not at all; negative by one who queued before; -1 is the last try
-- Returns the server's time in µs; refused {0, time left in ms, time, what is in the way}: an owner with its state; the
--   state alone when this sending has "ended" before or was "replaced".
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
local micros = now[1] * 1000000 + now[2]
local wait = tonumber(ARGV[9])
local place = ARGV[1] .. ' ' .. ARGV[2]
local done = redis.call('GET', KEYS[3])
if done then return {0, 0, micros, '{"state":"' .. done .. '"}'} end

local ends = string.format('%.0f', millis + ARGV[3])
local last, rivals, mine, rival = 0, 0, nil, nil
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local state, token, _, due, _, _, owner = string.match(all[i + 1], '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$')
  if tonumber(due) <= millis then
    redis.call('HDEL', KEYS[1], all[i])
  else
    local entry = {all[i], state, token, due, owner}
    if all[i] == ARGV[4] then
      mine = entry
    else
      last = math.max(last, tonumber(due))
      if string.find(ARGV[7], state, 1, true) then
        rivals = rivals + 1
        rival = rival or entry
      end
    end
  end
end

local inway = nil
if mine and mine[2] == 'running' then
  if mine[3] ~= ARGV[1] then inway = mine end
elseif rivals >= tonumber(ARGV[6]) and not (mine and string.find(ARGV[7], 'queued', 1, true)) then
  inway = rival
end
if inway then
  if math.abs(wait) > 1 then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', millis)
    redis.call('ZADD', KEYS[2], millis + math.abs(wait), place)
    redis.call('PEXPIRE', KEYS[2], math.abs(wait) + 1000)
  elseif wait < 0 then
    redis.call('ZREM', KEYS[2], place)
  end
  return {0, inway[4] - millis, micros, '{"state":"' .. inway[2] .. '",' .. string.sub(inway[5], 2)}
end

if wait < 0 then redis.call('ZREM', KEYS[2], place) end
if ARGV[8] == 'free' then
  redis.call('HDEL', KEYS[1], ARGV[4])
elseif ARGV[8] == 'running' or not mine then
  local token = ARGV[8] == 'running' and ARGV[1] or '-'
  redis.call('HSET', KEYS[1], ARGV[4], table.concat({ARGV[8], token, ARGV[5], ends, '-', '0', ARGV[2]}, ' '))
  redis.call('PEXPIREAT', KEYS[1], math.max(last, tonumber(ends)))
end
return micros
