-- Stands before an acquire script on a primary with replicas: as `guard`, and no grant without replicas that keep up.
-- KEYS last marker (string: identity|end of quarantine in ms|max_ttl in ms|replicas ever seen|1 if it named another server)
-- ARGV last four: max_ttl in ms, lag in s, acknowledgements that the caller waits for, and the rule: majority, all or a number
-- Returns {2, ms left, time}, {3, max_ttl in the marker, time}, {4, replicas that keep up, time, needed} or
--   {5, acknowledgements needed, time}; or goes on.
do
  local longest, lag = ARGV[#ARGV - 3], tonumber(ARGV[#ARGV - 2])
  local waits, rule = tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV]
  local server, info, clock = redis.call('INFO', 'server'), redis.call('INFO', 'replication'), redis.call('TIME')
  local micros, now = clock[1] * 1000000 + clock[2], clock[1] * 1000 + math.floor(clock[2] / 1000)
  -- Plain finds: a pattern would be tried at each character of a long text.
  local identity = string.match(server, '^%x+', string.find(server, 'run_id:', 1, true) + 7)
    .. ':' .. string.match(info, '^%x+', string.find(info, 'master_replid:', 1, true) + 14)
  local who, ending, agreed, seen, another =
    string.match(redis.call('GET', KEYS[#KEYS]) or '', '^(.-)|(%d+)|(%d+)|(%d+)|(%d)$')
  if who == identity and tonumber(agreed) ~= tonumber(longest) then return {3, tonumber(agreed), micros} end
  local known, alive = tonumber(seen or 0), 0 -- a lag can be -1: Redis' clock for it ticks once a second
  local online = string.find(info, ',state=online,', 1, true)
  while online do
    if tonumber(string.match(info, ',lag=(%-?%d+)', online)) <= lag then alive = alive + 1 end
    online = string.find(info, ',state=online,', online + 1, true)
  end
  local grown = alive > known
  known = math.max(known, alive)
  local needed = tonumber(rule) or rule == 'all' and math.max(1, known) or math.max(1, math.floor((known + 1) / 2))
  if who ~= identity then
    -- 'pending' as an end of the quarantine far away: it only starts to run out once replicas follow this primary.
    another, grown = who and 1 or 0, true
    who, agreed = identity, math.max(tonumber(longest), tonumber(agreed or 0))
    ending = string.format('%.0f', alive >= needed and now + agreed + (lag + 1) * 1000 or 9e15)
  elseif ending == '9000000000000000' and alive >= needed then
    ending, grown = string.format('%.0f', now + agreed + (lag + 1) * 1000), true
  end
  if grown then
    redis.call('SET', KEYS[#KEYS], string.format('%s|%s|%s|%d|%d', who, ending, longest, known, another))
  end
  if alive < needed then return {4, alive, micros, needed} end
  if now < tonumber(ending) then return {2, tonumber(ending) - now, micros} end
  if needed > waits then return {5, needed, micros} end
end
