-- Extend the lease of one share to ttl from now, if the token still holds the share. Other shares keep their leases.
-- KEYS 1 lock (as shared_acquire's)  2 fence (with fencing only)
-- ARGV 1 token  2 ttl in ms
-- Returns 1 extended, 0 the token holds no share.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local shares = redis.call('HGETALL', KEYS[1])
local last, mine = now, {}
for i = 1, #shares, 2 do
  local what, ends, rest = string.match(shares[i + 1], '^(%l+)@(%d+)( .*)$')
  ends = tonumber(ends) or 0
  if ends > now and string.sub(shares[i], 1, #ARGV[1]) == ARGV[1] then
    ends = now + ARGV[2]
    mine = {shares[i], what .. '@' .. ends .. rest}
  end
  last = math.max(last, ends)
end
if #mine == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], last - now) -- first: a full server refuses a script whose first write needs memory
redis.call('HSET', KEYS[1], mine[1], mine[2])
if KEYS[2] then redis.call('PEXPIRE', KEYS[2], 86400000) end
return 1
