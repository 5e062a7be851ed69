-- Give several mutexes, or one, from a holder to its successor. Idempotent per token of the successor.
-- KEYS 1 lock  2 fence (with fencing only), and so on of each other lock
-- ARGV 1 successor's token  2 its owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 -  6 number of locks  7 holder's token
-- Returns as multi_acquire. Refused if any of the locks is neither the holder's nor the successor's.
local token, number, step = ARGV[1], tonumber(ARGV[6]), ARGV[4] == '1' and 2 or 1
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local locks, adopted = {}, {}
for i = 1, number do
  locks[i] = KEYS[step * (i - 1) + 1]
  local held = redis.call('GET', locks[i])
  if held == 'reserved' then held = false end -- for a waiter: see free_mutex in fair_queue
  local by = held and string.sub(held, 1, #token)
  adopted[i] = by == token
  if by ~= token and by ~= ARGV[7] then
    local left = held and redis.call('PTTL', locks[i]) or 0
    return {0, left, micros, held and string.match(held, ' (.*)$') or '', i}
  end
end

local fence = micros
for i = 1, number do
  local ttl = adopted[i] and math.max(redis.call('PTTL', locks[i]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
  redis.call('SET', locks[i], token .. ' ' .. ARGV[2], 'PX', ttl)
  if ARGV[4] == '1' then fence = math.max(fence, (tonumber(redis.call('GET', KEYS[2 * i])) or 0) + 1) end
end
if ARGV[4] ~= '1' then return micros end
for i = 1, number do redis.call('SET', KEYS[2 * i], string.format('%.0f', fence), 'PX', 86400000) end
return {1, fence, micros}
