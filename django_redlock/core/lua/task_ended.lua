-- A function that remembers which deliveries have ended. Scripts include this file with USES.
-- KEYS none
-- ARGV none
-- Returns nothing of its own.

-- Remember a delivery in its set for `ttl` ms, or forget the delivery if `ttl` is '0'. The set lapses as a whole.
local function mark_ended(set, number, ttl)
  redis.call('SREM', set, number) -- first: a server that is full lets a script go on that has begun to write
  if ttl ~= '0' then
    redis.call('SADD', set, number)
    redis.call('PEXPIRE', set, math.max(ttl, redis.call('PTTL', set)))
  end
end

