-- Move one or several mutexes from their holder to the next holder, all or none. Idempotent per token: a request sent
-- twice is granted twice.
-- KEYS 1 lock  2 fence (with fencing only), and so on of each other lock
-- ARGV 1 token of the next holder  2 its owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 token of the holder  6 number of locks
-- Returns as mutex_acquire. Refused if any of the locks is neither the holder's nor the next holder's.
local token, step = ARGV[1], ARGV[4] == '1' and 2 or 1
local last = ARGV[6] * step
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local given = {}
for i = 1, last, step do
  local held = redis.call('GET', KEYS[i])
  if held == 'reserved' then held = false end -- for a waiter: see free_mutex in waking
  local by = held and string.sub(held, 1, #token)
  given[i] = by == token
  if by ~= token and by ~= ARGV[5] then
    local left = held and redis.call('PTTL', KEYS[i]) or 0
    return {0, left, micros, held and string.match(held, ' (.*)$') or '', (i - 1) / step + 1}
  end
end

for i = 1, last, step do
  local ttl = given[i] and math.max(redis.call('PTTL', KEYS[i]), ARGV[3]) or ARGV[3] -- as in mutex_acquire
  redis.call('SET', KEYS[i], token .. ' ' .. ARGV[2], 'PX', ttl)
end
if step == 1 then return micros end
-- USES fencing
local fences = {}
for i = 2, last, 2 do fences[#fences + 1] = KEYS[i] end
return {1, next_fence(fences, micros), micros}
