-- Stands before an acquire script: no new grant by a server that may have forgotten one (restarted, flushed, replaced).
-- KEYS last marker (string: master_replid, new with each start and each promotion|end of quarantine in ms|max_ttl in ms|replicas ever seen|1 if it named another server)
-- ARGV last max_ttl in ms
-- Returns {2, ms of quarantine left, server time in µs} or {3, max_ttl in the marker, server time in µs}; or goes on.
do
  local info = redis.call('INFO', 'replication') -- a plain find: a pattern would be tried at each of its characters
  local _, place = string.find(info, 'master_replid:', 1, true)
  local identity = string.sub(info, place + 1, place + 40)
  local longest, clock = ARGV[#ARGV], redis.call('TIME')
  local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  ARGV[#ARGV] = clock -- for the script that follows, behind its own: time stands still while they run
  local mark = redis.call('GET', KEYS[#KEYS]) or ''
  local ending, agreed = string.match(mark, '^|(%d+)|(%d+)|', 41)
  if string.find(mark, identity, 1, true) ~= 1 then
    -- What was in quarantine before may have forgotten longer leases than there are now.
    ending = tonumber(ending or 0)
    local before = ending < 9e15 and ending - now or ending - 9e15
    local length = math.max(tonumber(longest), tonumber(agreed or 0), before)
    redis.call('SET', KEYS[#KEYS], string.format('%s|%.0f|%s|0|%d', identity, now + length, longest, agreed and 1 or 0))
    return {2, length, clock[1] * 1000000 + clock[2]}
  end
  if agreed ~= longest then return {3, tonumber(agreed), clock[1] * 1000000 + clock[2]} end
  if now < tonumber(ending) then return {2, tonumber(ending) - now, clock[1] * 1000000 + clock[2]} end
end
