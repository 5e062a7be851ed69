-- Prepended to an acquire script by which a holder restores a lock that the server has lost. During a quarantine the
-- server can't have granted the lock to another client, so a holder with a valid lease may restore its lock.
-- KEYS last marker (as quarantine's)
-- ARGV last max_ttl in ms
-- Returns 0 if there is no quarantine; otherwise the acquire script continues.
do
  local mark, now = redis.call('GET', KEYS[#KEYS]) or '', redis.call('TIME')
  local ending = string.match(mark, ' (%d+)|%d$')
  if not ending or now[1] * 1000 + math.floor(now[2] / 1000) >= tonumber(ending)
    or not string.find(redis.call('INFO', 'replication'), string.sub(mark, 1, 54), 1, true) then
    return 0
  end
end
