-- A queued task, or one that nobody queued, begins to run. Idempotent per token.
-- KEYS 1 lock  2 waiters  3 done (of this sending)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 task id  5 sending  6 limit  7 rivals  8 stays in ms  9 wait
--   rivals: the states of others that count; stays: how long one that nobody queued is to count as queued, beside its
--   running and after; one that was queued does so till its end; 0: neither
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
local pattern = '^(%l+) (%S+) (%S+) (%d+) (%S+) (%d+) (.*)$'
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local state, token, _, due, following, life, owner = string.match(all[i + 1], pattern)
  local pending = tonumber(life) > millis
  if tonumber(due) <= millis and pending then -- its process has died: its next sending is still to come
    state, token, due, following, life, pending = 'queued', '-', life, '-', '0', false
  end
  if tonumber(due) <= millis then
    redis.call('HDEL', KEYS[1], all[i])
  else
    local entry = {all[i], state, token, due, owner, following, life}
    if all[i] == ARGV[4] then
      mine = entry
    else
      last = math.max(last, tonumber(due), tonumber(life))
      if string.find(ARGV[7], state, 1, true) or pending and string.find(ARGV[7], 'queued', 1, true) then
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
local following, life = '-', '0'
if mine and mine[2] == 'running' then
  following, life = mine[6], mine[7]
elseif ARGV[8] ~= '0' then
  following, life = ARGV[5], mine and mine[4] or string.format('%.0f', millis + ARGV[8])
end
redis.call('HSET', KEYS[1], ARGV[4], table.concat({'running', ARGV[1], ARGV[5], ends, following, life, ARGV[2]}, ' '))
redis.call('PEXPIREAT', KEYS[1], math.max(last, tonumber(ends), tonumber(life)))
return micros
