-- Stands before an acquire script on a primary with replicas: as `guard`, and no grant without replicas that keep up.
-- KEYS last marker (as guard's; while too few replicas follow, the quarantine's end is 9e15 and the ms that it is to last)
-- ARGV last four: max_ttl in ms, lag in s, acknowledgements that the caller waits for, and the rule: majority, all or a number
-- Returns {2, ms left, time}, {3, max_ttl in the marker, time}, {4, replicas that keep up, time, needed} or
--   {5, acknowledgements needed, time}; or goes on.
do
  local longest, lag = ARGV[#ARGV - 3], tonumber(ARGV[#ARGV - 2])
  local waits, rule = tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV]
  local info, clock = redis.call('INFO', 'replication'), redis.call('TIME')
  local micros = clock[1] * 1000000 + clock[2]
  ARGV[#ARGV - 3] = clock -- as guard
  local now = math.floor(micros / 1000)
  -- Plain finds: a pattern would be tried at each character of a long text.
  local _, place = string.find(info, 'master_replid:', 1, true)
  local identity = string.sub(info, place + 1, place + 40)
  local mark = redis.call('GET', KEYS[#KEYS]) or ''
  local same = string.sub(mark, 1, #identity) == identity
  local ending, agreed, seen, another = string.match(mark, '|(%d+)|(%d+)|(%d+)|(%d)$', same and #identity + 1 or 1)
  if same and agreed ~= longest then return {3, tonumber(agreed), micros} end
  local known, alive = tonumber(seen or 0), 0 -- a lag can be -1: Redis' clock for it ticks once a second
  _, place = string.find(info, ',state=online,', 1, true)
  while place do
    _, place = string.find(info, ',lag=', place, true)
    if tonumber(string.match(info, '^%-?%d+', place + 1)) <= lag then alive = alive + 1 end
    _, place = string.find(info, ',state=online,', place, true)
  end
  local changed = alive > known
  known = math.max(known, alive)
  local needed = tonumber(rule) or rule == 'all' and math.max(1, known) or math.max(1, math.floor((known + 1) / 2))
  ending = tonumber(ending or 0)
  if not same then
    another, changed = mark == '' and 0 or 1, true
    -- What was in quarantine before may have forgotten longer leases than there are now. The lag is added again below.
    local before = ending < 9e15 and ending - now - (lag + 1) * 1000 or ending - 9e15
    ending = 9e15 + math.max(tonumber(longest), tonumber(agreed or 0), before)
  end
  if ending >= 9e15 and alive >= needed then
    -- It only starts to run out once replicas follow this primary.
    ending, changed = now + ending - 9e15 + (lag + 1) * 1000, true
  end
  if changed then
    local text = string.format('%s|%.0f|%s|%d|%d', identity, ending, longest, known, another)
    redis.call('SET', KEYS[#KEYS], text)
  end
  if alive < needed then return {4, alive, micros, needed} end
  if now < ending then return {2, ending - now, micros} end
  if needed > waits then return {5, needed, micros} end
end
