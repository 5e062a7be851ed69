-- Prepended to an acquire script: refuses on a server that may have lost a lock (restarted, flushed or replaced).
-- KEYS last marker (string: 'master_replid:' and 40 digits, as in INFO, new with each start and each promotion|max_ttl in ms
--   |replicas ever seen, if it has any; and while a quarantine lasts: space, its end in ms|1 if it named another server)
-- ARGV last max_ttl in ms
-- Returns {2, ms of quarantine left, server time in µs}, or {3, max_ttl in the marker, server time in µs} if max_ttl
--   differs; otherwise the acquire script continues.
do
  local info, mark, longest = redis.call('INFO', 'replication'), redis.call('GET', KEYS[#KEYS]) or '', ARGV[#ARGV]
  -- Plain finds are faster: a pattern would be tried at each character of the long INFO text.
  local same = string.find(info, string.sub(mark, 1, 54), 1, true)
  if not same or string.sub(mark, 56) ~= longest then -- usually false: the server is in service
    local agreed, seen, ending, another = string.match(mark, '^|(%d+)(|?%d*) ?(%d*)|?(%d?)$', 55)
    local clock = redis.call('TIME')
    local now, micros = clock[1] * 1000 + math.floor(clock[2] / 1000), clock[1] * 1000000 + clock[2]
    same = same and agreed
    if same and agreed ~= longest then return {3, tonumber(agreed), micros} end
    ending = tonumber(ending or '')
    if not same then
      -- A quarantine that still lasts may be for leases with a larger max_ttl.
      local before = not ending and 0 or ending < 9e15 and ending - now or ending - 9e15
      ending = now + math.max(tonumber(longest), tonumber(agreed or 0), before)
      seen, another = '', mark == '' and 0 or 1
    end
    local left = (ending or 0) - now
    local text = string.match(info, 'master_replid:%x+') .. '|' .. longest .. seen
    if left > 0 then text = text .. string.format(' %.0f|%d', ending, another) end
    if text ~= mark then redis.call('SET', KEYS[#KEYS], text) end
    if left > 0 then return {2, left, micros} end
  end
end
