-- Wake one or several waiters, each by its list.
-- KEYS 1 wake, and so on of each other waiter
-- ARGV none
-- Returns the number of wake-ups. None is pushed to a list that has one, so no waiter is blocked on that list.
local woken = 0
for _, wake in ipairs(KEYS) do
  if redis.call('EXISTS', wake) == 0 then
    redis.call('RPUSH', wake, '1')
    redis.call('PEXPIRE', wake, 10000)
    woken = woken + 1
  end
end
return woken
