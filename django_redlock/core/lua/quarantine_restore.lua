-- Stands before an acquire script: while a quarantine lasts nobody else can be granted the lock, so its holder, whose
-- lease is still valid, may put it back.
-- KEYS last marker (as quarantine's)
-- ARGV last max_ttl in ms
-- Returns 0 when there is no quarantine; or goes on.
do
  local mark, now = redis.call('GET', KEYS[#KEYS]) or '', redis.call('TIME')
  local ending = string.match(mark, ' (%d+)|%d$')
  if not ending or now[1] * 1000 + math.floor(now[2] / 1000) >= tonumber(ending)
    or not string.find(redis.call('INFO', 'replication'), string.sub(mark, 1, 54), 1, true) then
    return 0
  end
end
