-- Describe a lock: the value of its key, the lease and the waiters. Changes nothing.
-- KEYS 1 lock  2 waiters
-- ARGV 1 with the waiters' entries (1 or 0)
-- Never fails, even if other programs have written to the keys, because one error would hide a whole list of locks.
-- Returns {value, lease left in ms} for a mutex without waiters, the usual case;
--   else {type, value, lease left, number of waiters, digest[, entries]}; nothing if the lock is not held.
--   Each text of the value is cut after 10,000 bytes, since owners are shorter.
--   digest: SHA-1 of tokens and owners, as in force_release, without counts and times, which change during a lease.
local LONGEST = 10000
local WAITERS = KEYS[2]
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return false end
local left = redis.call('PTTL', KEYS[1])
local value = kind == 'string' and redis.call('GET', KEYS[1]) or ''
if value == 'reserved' then return false end -- for a waiter: see free_mutex in waking
local beside = redis.call('EXISTS', WAITERS)
if kind == 'string' and #value <= LONGEST and beside == 0 then return {value, left} end
local clock = redis.call('TIME')
local millis = clock[1] * 1000 + math.floor(clock[2] / 1000)
local holders = {value}
if kind == 'string' then
  value = string.sub(value, 1, LONGEST)
elseif kind == 'hash' then
  holders = redis.call('HKEYS', KEYS[1])
  value = {}
  local last = 0
  for _, field in ipairs(holders) do
    local record = redis.call('HGET', KEYS[1], field)
    local ends = string.match(record, '^%l+@(%d+) ') -- end of a share
    local due, life = string.match(record, '^%l+ %S+ %S+ (%d+) %S+ (%d+) ') -- the two ends of a task, see task_record
    if due and tonumber(due) <= millis then record = string.gsub(record, '^%l+', 'queued') end
    ends = ends or due and math.max(due, life)
    if not ends or tonumber(ends) > millis then
      last = math.max(last, ends or math.huge)
      value[#value + 1] = string.sub(field, 1, LONGEST)
      value[#value + 1] = string.sub(record, 1, LONGEST)
    end
  end
  if #value == 0 then return false end -- all have expired, though the key is kept
  left = math.min(left, last - millis)
end
table.sort(holders)
local digest = redis.sha1hex(table.concat(holders, '\n'))
local waiters = redis.pcall('ZCOUNT', WAITERS, millis, '+inf')
if type(waiters) ~= 'number' then waiters = 0 end -- the key has another type
local answer = {kind, value, left, waiters, digest}
if ARGV[1] == '1' and waiters > 0 then
  answer[6] = redis.call('ZRANGEBYSCORE', WAITERS, millis, '+inf')
end
return answer
