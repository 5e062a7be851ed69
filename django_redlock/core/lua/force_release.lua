-- Free a lock of any kind, whoever holds it, and wake one waiter.
-- KEYS 1 lock  2 waiters  3 wake
-- ARGV 1 digest (as describe gives it, of the holding that the caller saw; empty: whatever it is now)
-- Returns 1 freed, 0 nobody held it, -1 it has changed hands since.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return 0 end
if ARGV[1] ~= '' then
  local holders = ''
  if kind == 'string' then
    holders = redis.call('GET', KEYS[1])
  elseif kind == 'hash' then
    holders = table.concat(redis.call('HGETALL', KEYS[1]), '\n')
  elseif kind == 'zset' then
    local members = redis.call('ZRANGE', KEYS[1], 0, -1)
    table.sort(members)
    holders = table.concat(members, '\n')
  end
  if redis.sha1hex(holders) ~= ARGV[1] then return -1 end
end
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[2]) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.pcall('RPUSH', KEYS[3], '1')
  redis.pcall('PEXPIRE', KEYS[3], 10000)
end
return 1
