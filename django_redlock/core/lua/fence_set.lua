-- Remember a fencing token that a majority is about to grant, unless a larger one is known.
-- KEYS 1 fence
-- ARGV 1 fencing token
-- Returns 1.
if (tonumber(redis.call('GET', KEYS[1])) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', 86400000)
end
return 1
