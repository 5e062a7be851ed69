-- Take a new server into service at once. Only safe if no lock is held on this server.
-- KEYS 1 marker (as quarantine's)
-- ARGV 1 max_ttl in ms
-- Returns 1 armed, 0 refused: the marker names another server, whose locks this server may have lost, or a
--   quarantine for this reason has not ended.
local identity = string.match(redis.call('INFO', 'replication'), 'master_replid:%x+')
local mark, now = redis.call('GET', KEYS[1]) or identity, redis.call('TIME')
if string.sub(mark, 1, 54) ~= identity then return 0 end
local ending = string.match(mark, ' (%d+)|1$')
if ending and now[1] * 1000 + math.floor(now[2] / 1000) < tonumber(ending) then return 0 end
redis.call('SET', KEYS[1], identity .. '|' .. ARGV[1])
return 1
