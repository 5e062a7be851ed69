-- Acquire a share of a lock with several shares, or return a holder. Idempotent per token, as mutex_acquire.
-- USES waking
-- KEYS 1 lock (hash: token and owner -> kind@end in ms holder)  2 waiters  3 wake  4 fence (with fencing only)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait (as mutex_acquire's)  6 kind  7 limit  8 holder
--   rlock: any number of shares of one holder. semaphore: `limit` shares of any holders.
-- Returns as mutex_acquire. A new client that can wait is also refused if there are as many waiters as free shares.
local token, wait, kind, limit, holder = ARGV[1], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), ARGV[8]
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local queued = wait < 0
local waiter = string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire

local shares = redis.call('HGETALL', KEYS[1])
local due = now + ARGV[3]
local last, others, first, final, owner, mine = due, 0, math.huge, 0, '', false
for i = 1, #shares, 2 do
  local what, ends, who = string.match(shares[i + 1], '^(%l+)@(%d+) (.*)$')
  if what ~= kind then
    return redis.error_reply('WRONGTYPE it is held as a ' .. (what or 'hash') .. ', not as a ' .. kind)
  end
  ends = tonumber(ends)
  local same = string.sub(shares[i], 1, #token) == token
  mine = mine or ends > now and (same or kind == 'rlock' and who == holder)
  if same then due = math.max(due, ends) end -- as in mutex_acquire
  if ends <= now or same then
    redis.call('HDEL', KEYS[1], shares[i])
  else
    last = math.max(last, ends)
    if kind ~= 'rlock' or who ~= holder then
      others, final = others + 1, math.max(final, ends)
      if ends < first then first, owner = ends, string.match(shares[i], ' (.*)$') end
    end
  end
end

local room = limit - others
local turn = mine or queued or wait == 0 or redis.call('ZCOUNT', KEYS[2], now, '+inf') < room
if room <= 0 or not turn then
  refuse(KEYS[2], waiter, now, wait)
  return {0, room > 0 and 100 or (limit == 1 and final or first) - now, micros, owner}
end

if queued then redis.call('ZREM', KEYS[2], waiter) end
redis.call('HSET', KEYS[1], token .. ' ' .. ARGV[2], kind .. '@' .. due .. ' ' .. holder)
redis.call('PEXPIRE', KEYS[1], math.max(last, due) - now)
-- A release wakes one waiter. If another share is free, this acquire wakes the next waiter.
if others + 1 < limit and redis.call('EXISTS', KEYS[2]) == 1 then wake_one(KEYS[3]) end
if ARGV[4] ~= '1' then return micros end
-- USES fencing
return {1, next_fence({KEYS[4]}, micros), micros}
