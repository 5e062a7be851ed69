-- Wake one or several waiters, each by its list.
-- USES waking
-- KEYS 1 wake, and so on of each other waiter
-- ARGV none
-- Returns 1.
for _, wake in ipairs(KEYS) do wake_one(wake) end
return 1
