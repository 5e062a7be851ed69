-- Acquire a read-write lock, to read together with other readers or to write alone. Idempotent per token.
-- USES fair_queue
-- KEYS 1 lock (hash: token and owner -> rwlock@end in ms mode holder)  2 waiters  3 wake  4 line  5 fence (with fencing only)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fencing (1 or 0)  5 wait  6 order  7 mode (r or w)  8 holder
--   wait: as mutex_acquire's
--   order: 2: in order of arrival; 1: readers behind writers that came earlier, writers in any order; 0: the holder
--   restores its lock, regardless of the queue
--   holder: a reader may read again, and a writer may read and write again, without queueing
-- Returns as fair_acquire; an error that begins with UPGRADE for a reader that requests to write.
local token, wait, order, mode, holder = ARGV[1], tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local place = mode .. ' ' .. string.sub(token, 1, -9) .. ' ' .. ARGV[2] -- the same for all attempts of one acquire

local shares = redis.call('HGETALL', KEYS[1])
local due = now + ARGV[3]
local last, left, owner, others, mine = due, nil, '', {r = 0, w = 0}, {}
for i = 1, #shares, 2 do
  local what, ends, how, who = string.match(shares[i + 1], '^(%l+)@(%d+) (%l?) ?(.*)$')
  if what ~= 'rwlock' then
    return redis.error_reply('WRONGTYPE it is held as a ' .. (what or 'hash') .. ', not as a rwlock')
  end
  ends = tonumber(ends)
  local ours = string.sub(shares[i], 1, #token) == token
  if ours then due = math.max(due, ends) end -- as in mutex_acquire
  if ends <= now or ours then redis.call('HDEL', KEYS[1], shares[i]) end
  if ends > now then
    if who == holder then mine[how] = true end
    if not ours then
      last = math.max(last, ends)
      others[how] = others[how] + 1
      if who ~= holder and (mode == 'w' or how == 'w') then
        left, owner = math.max(left or 0, ends - now), string.match(shares[i], ' (.*)$')
      end
    end
  end
end

if mode == 'w' and mine.r and not mine.w and order ~= '0' then
  return redis.error_reply('UPGRADE a reader can not begin to write')
end
if not left and not (mine.r or mine.w) and (order == '2' or order == '1' and mode == 'r') then
  left = ahead(place, mode, now)
end
if left then
  refuse_in_queue(place, micros, wait)
  return {0, left, micros, owner}
end

if wait < 0 then leave(place) end
redis.call('HSET', KEYS[1], token .. ' ' .. ARGV[2], 'rwlock@' .. due .. ' ' .. mode .. ' ' .. holder)
redis.call('PEXPIRE', KEYS[1], math.max(last, due) - now)
if ARGV[4] ~= '1' then return micros end
-- USES fencing
return {1, next_fence({KEYS[5]}, micros), micros}
