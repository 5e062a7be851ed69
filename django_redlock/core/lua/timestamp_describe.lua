-- Describe a timestamp lock. Changes nothing.
-- KEYS 1 lock  2 waiters  3 holder (as timestamp_acquire's)
-- ARGV 1 with the waiters' entries (1 or 0)  2 ms in a unit of the value  3 clock skew in ms
-- Never fails, even if other programs have written to the keys, because one error would hide a whole list of locks.
-- Returns {'string', token and owner, lease left in ms, number of waiters, digest[, entries]} as
--   describe; nothing if the lock is not held or the value is no timestamp. Token and owner are empty for older code.
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return false end
local held = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local holder = redis.pcall('HMGET', KEYS[3], 'value', 'token', 'owner')
local value, left = '', -1
if holder[1] == held and holder[2] and holder[3] then
  value = string.sub(holder[2] .. ' ' .. holder[3], 1, 10000)
  left = redis.call('PTTL', KEYS[1])
end
if left < 0 then
  local due = string.match(held, '^%s*%d[%d.eE+]*%s*$') and tonumber(held)
  if not due or due * ARGV[2] > 100 * now then return false end
  left = math.ceil((math.floor(due) + 1) * ARGV[2] + ARGV[3] - now)
  if left <= 0 then return false end
end
local digest = redis.sha1hex(value ~= '' and value or held)
local waiters = redis.pcall('ZCOUNT', KEYS[2], now, '+inf')
if type(waiters) ~= 'number' then waiters = 0 end
local answer = {'string', value, left, waiters, digest}
if ARGV[1] == '1' and waiters > 0 then
  answer[6] = redis.call('ZRANGEBYSCORE', KEYS[2], now, '+inf')
end
return answer
