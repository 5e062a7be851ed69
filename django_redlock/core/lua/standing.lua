-- Say what the marker says of this server, without changing anything.
-- KEYS 1 marker
-- ARGV none
-- Returns {1 if it names this server else 0, ms of quarantine left, max_ttl in ms that its clients agreed on (0: none yet)}.
local identity = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local who, ending, agreed = string.match(redis.call('GET', KEYS[1]) or '', '^(.-)|(%d+)|(%d+)|')
if who ~= identity then return {0, 0, 0} end
local now = redis.call('TIME')
return {1, math.max(0, tonumber(ending) - now[1] * 1000 - math.floor(now[2] / 1000)), tonumber(agreed)}
