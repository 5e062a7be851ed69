-- Acquire a mutex, or return the holder. Idempotent per token: the same request sent twice is granted twice.
-- KEYS 1 lock  2 waiters  3 fence
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait
--   wait: ms for which a refused client is listed as a waiter. 0: not listed; negative: was listed before; -1: the last
--   try, after which the client is no longer listed
-- Returns the server's time in µs; with fencing {1, fencing token, time};
--   refused {0, lease left in ms, time, owner of the holder}. A newcomer that can wait is also refused while the lock
--   is reserved for a waiter that was woken: see free_mutex in fair_queue.
local wait = tonumber(ARGV[5])
local queued = wait < 0
local function waiter() -- the same for all attempts of one acquire
  return string.sub(ARGV[1], 1, -9) .. ' ' .. ARGV[2]
end

if queued then redis.call('ZREM', KEYS[2], waiter()) end
local held = redis.call('GET', KEYS[1])
if held == 'reserved' and (queued or wait == 0) then held = false end
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]

if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
  wait = math.abs(wait)
  if wait > 1 then
    local millis = math.floor(micros / 1000)
    -- Not at the first try for a held lock, which is part of most hand-overs. A wake-up that a dead waiter did not
    -- receive makes the next waiter try twice. Each release reserves the lock for a dead waiter that is still listed.
    if queued or held == 'reserved' then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', millis) end
    if type(redis.pcall('ZADD', KEYS[2], millis + wait, waiter())) ~= 'number' then
      redis.call('ZREM', KEYS[2], waiter()) -- first: a full server refuses a script whose first write needs memory
      redis.call('ZADD', KEYS[2], millis + wait, waiter())
    end
    redis.call('PEXPIRE', KEYS[2], wait + 1000)
  end
  local space = string.find(held, ' ', 1, true) -- the text before it is the holder's secret token
  return {0, redis.call('PTTL', KEYS[1]), micros, space and string.sub(held, space + 1) or ''}
end

-- A repeated request may arrive after an extension: it does not shorten the lease.
local ttl = held and math.max(redis.call('PTTL', KEYS[1]), ARGV[3]) or ARGV[3]
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ttl)
if ARGV[4] ~= '1' then return micros end
local fence = math.max(micros, (tonumber(redis.call('GET', KEYS[3])) or 0) + 1)
redis.call('SET', KEYS[3], string.format('%.0f', fence), 'PX', 86400000)
return {1, fence, micros}
