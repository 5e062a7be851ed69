-- Read the marker of this server. Changes nothing.
-- KEYS 1 marker (as quarantine's)
-- ARGV none
-- Returns {1 if the marker names this server, else 0; ms of quarantine left; max_ttl of its clients in ms, 0: unknown}.
local mark, now = redis.call('GET', KEYS[1]) or '', redis.call('TIME')
local agreed, ending = string.match(mark, '^|(%d+)|?%d* ?(%d*)', 55)
if not agreed or not string.find(redis.call('INFO', 'replication'), string.sub(mark, 1, 54), 1, true) then
  return {0, 0, 0}
end
return {1, math.max(0, (tonumber(ending) or 0) - now[1] * 1000 - math.floor(now[2] / 1000)), tonumber(agreed)}
