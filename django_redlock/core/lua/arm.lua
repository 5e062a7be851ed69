-- Take a new server into service at once. The caller asserts that no lock is held here.
-- KEYS 1 marker
-- ARGV 1 max_ttl in ms
-- Returns 1 armed, 0 refused: the marker names another server, whose locks this one may have forgotten, or did so until
--   the quarantine that still lasts.
local identity = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local who, ending, another = string.match(redis.call('GET', KEYS[1]) or '', '^(.-)|(%d+)|%d+|%d+|(%d)$')
local now = redis.call('TIME')
local lasts = another == '1' and now[1] * 1000 + math.floor(now[2] / 1000) < tonumber(ending)
if who and (who ~= identity or lasts) then return 0 end
redis.call('SET', KEYS[1], identity .. '|0|' .. ARGV[1] .. '|0|0')
return 1
