-- Store a fencing token that is about to be granted, unless a larger one is stored.
-- KEYS 1 fence, and the fence of each other lock that is granted with it
-- ARGV 1 fencing token
-- Returns 1.
for _, key in ipairs(KEYS) do
  if (tonumber(redis.call('GET', key)) or 0) < tonumber(ARGV[1]) then
    redis.call('SET', key, ARGV[1], 'PX', 86400000)
  end
end
return 1
