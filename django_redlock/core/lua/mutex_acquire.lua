-- Acquire one or several mutexes, all or none. Refused with the holder of the first mutex that is held. Idempotent
-- per token: the same request sent twice is granted twice.
-- KEYS 1 lock  2 waiters  3 wake  4 fence (with fencing only), and so on of each other lock
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait
--   wait: ms for which a refused client is listed as a waiter. 0: not listed; negative: was listed before; -1: the last
--   try, after which the client is no longer listed
-- Returns the server's time in µs; with fencing {1, fencing token, time}, one token for all locks; refused {0, lease left
--   in ms, time, owner of the holder, index of its lock}. A waiter is listed for that lock only. A new client that can
--   wait is also refused while a lock is reserved for a waiter that was woken: see free_mutex in waking.
-- USES waking
local token, wait, step = ARGV[1], tonumber(ARGV[5]), ARGV[4] == '1' and 4 or 3
local last = #KEYS - #KEYS % step -- the quarantine adds a key
local queued, newcomer = wait < 0, wait > 0
local waiter = string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire
wait = math.abs(wait)

local held, which = {}, nil
for i = 1, last, step do
  held[i] = redis.call('GET', KEYS[i])
  if held[i] == 'reserved' and not newcomer then held[i] = false end
  if held[i] and string.sub(held[i], 1, #token) ~= token then which = which or i end
end
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]

-- Remove the waiter from all locks except the lock that refused. Pass on the wake-ups of free locks.
for i = 1, queued and last or 0, step do
  if i ~= which or wait <= 1 then redis.call('ZREM', KEYS[i + 1], waiter) end
  if which and not held[i] and redis.call('EXISTS', KEYS[i + 1]) == 1 then wake_one(KEYS[i + 2]) end
end

if which then
  if wait > 1 then
    local now = math.floor(micros / 1000)
    -- Not at the first try for a held lock, which is part of most hand-overs. A wake-up that a dead waiter did not
    -- receive makes the next waiter try twice. Each release reserves the lock for a dead waiter that is still listed.
    if queued or held[which] == 'reserved' then redis.call('ZREMRANGEBYSCORE', KEYS[which + 1], '-inf', now) end
    enlist(KEYS[which + 1], waiter, now, wait)
  end
  local space = string.find(held[which], ' ', 1, true) -- the text before it is the holder's secret token
  local owner = space and string.sub(held[which], space + 1) or ''
  if space == 5 and string.sub(held[which], 1, 4) == 'done' then owner = '{"state":"done",' .. string.sub(owner, 2) end
  return {0, redis.call('PTTL', KEYS[which]), micros, owner, (which - 1) / step + 1}
end

for i = 1, last, step do
  -- A repeated request may arrive after an extension: it does not shorten the lease.
  local ttl = held[i] and math.max(redis.call('PTTL', KEYS[i]), ARGV[3]) or ARGV[3]
  redis.call('SET', KEYS[i], token .. ' ' .. ARGV[2], 'PX', ttl)
end
if step == 3 then return micros end
-- USES fencing
local fences = {}
for i = 4, last, 4 do fences[#fences + 1] = KEYS[i] end
return {1, next_fence(fences, micros), micros}
