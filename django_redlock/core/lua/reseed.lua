-- Stands before an acquire script: while a quarantine lasts nobody else can be granted the lock, so its holder, whose
-- lease is still valid, may put it back.
-- KEYS last marker
-- ARGV last max_ttl in ms
-- Returns 0 when there is no quarantine; or goes on.
do
  local who, ending = string.match(redis.call('GET', KEYS[#KEYS]) or '', '^(.-)|(%d+)|')
  local clock = redis.call('TIME')
  if not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. (who or '-'), 1, true)
    or clock[1] * 1000 + math.floor(clock[2] / 1000) >= tonumber(ending) then
    return 0
  end
  ARGV[#ARGV] = clock -- as guard
end
