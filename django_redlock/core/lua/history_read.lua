-- Read the counts of one lock in one minute. Changes nothing.
-- KEYS 1 minute (as in history_add.lua)
-- ARGV 1 the lock's name
-- Returns {text, 1 if the minute has too many names to count each separately, else 0}; nothing if the minute is empty.
local texts = redis.call('HMGET', KEYS[1], ARGV[1], '}')
if not texts[1] and not texts[2] then return false end
return {texts[1] or '', texts[2] and 1 or 0}
