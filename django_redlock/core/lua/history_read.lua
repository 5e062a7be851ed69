-- Read fields of one minute of the history. Changes nothing.
-- KEYS 1 minute (as in history_add.lua)
-- ARGV 1 a JSON list of fields
-- Returns the value of each field, or false.
return redis.call('HMGET', KEYS[1], unpack(cjson.decode(ARGV[1])))
