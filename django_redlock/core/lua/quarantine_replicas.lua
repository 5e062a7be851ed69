-- Prepended to an acquire script on a primary: as `quarantine`, and refuses if too few replicas keep up.
-- KEYS last marker (as quarantine's; while too few replicas follow, the quarantine's end is 9e15 and the ms that it is to last)
-- ARGV last four: max_ttl in ms, lag in s, acknowledgements that the caller waits for, and the requirement: majority, all or a number
-- Returns {2, ms left, time}, {3, max_ttl in the marker, time}, {4, replicas that keep up, time, needed} or
--   {5, acknowledgements needed, time} if the client waits for another number; otherwise the acquire script continues.
do
  local last, find, sub = #ARGV, string.find, string.sub
  local longest, lag, waits, rule = ARGV[last - 3], tonumber(ARGV[last - 2]), tonumber(ARGV[last - 1]), ARGV[last]
  local info, mark = redis.call('INFO', 'replication'), redis.call('GET', KEYS[#KEYS]) or ''
  local same = find(info, sub(mark, 1, 54), 1, true)
  local alive, behind = 0, nil -- a lag can be -1: Redis' clock for it ticks once a second
  local _, place = find(info, ',state=online,', 1, true)
  while place do
    _, place, behind = find(info, '^offset=%d+,lag=(%-?%d+)', place + 1)
    if tonumber(behind) <= lag then alive = alive + 1 end
    _, place = find(info, ',state=online,', place, true)
  end
  -- Usually the server is in service, and the marker contains only server, max_ttl and number of replicas.
  local seen = same and sub(mark, 56, 55 + #longest) == longest and tonumber(sub(mark, 57 + #longest))
  local agreed, ending, another = longest, nil, nil
  if not seen then agreed, seen, ending, another = string.match(mark, '^|(%d+)|?(%d*) ?(%d*)|?(%d?)$', 55) end
  local known = math.max(tonumber(seen or '') or 0, alive)
  local needed = tonumber(rule) or math.max(1, rule == 'all' and known or math.floor((known + 1) / 2))
  if seen ~= known or alive < needed or needed ~= waits then
    local clock = redis.call('TIME')
    local now, micros = clock[1] * 1000 + math.floor(clock[2] / 1000), clock[1] * 1000000 + clock[2]
    same = same and agreed
    if same and agreed ~= longest then return {3, tonumber(agreed), micros} end
    ending = tonumber(ending or '')
    if not same then
      -- A quarantine that still lasts may be for leases with a larger max_ttl. The lag is added again below.
      local before = not ending and 0 or ending < 9e15 and ending - now - (lag + 1) * 1000 or ending - 9e15
      ending = 9e15 + math.max(tonumber(longest), tonumber(agreed or 0), before)
      another = mark == '' and 0 or 1
    end
    if ending and ending >= 9e15 and alive >= needed then
      -- The quarantine begins to run out when enough replicas follow this primary.
      ending = now + ending - 9e15 + (lag + 1) * 1000
    end
    local left = (ending or 0) - now
    local text = string.match(info, 'master_replid:%x+') .. '|' .. longest .. '|' .. known
    if left > 0 then text = text .. string.format(' %.0f|%d', ending, another) end
    if text ~= mark then redis.call('SET', KEYS[#KEYS], text) end
    if alive < needed then return {4, alive, micros, needed} end
    if left > 0 then return {2, left, micros} end
    if needed ~= waits then return {5, needed, micros} end
  end
end
