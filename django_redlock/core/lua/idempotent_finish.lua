-- End a request with an idempotency key: store the answer or remove the record, and release the lock.
-- KEYS 1 lock  2 record (as idempotent_begin's)
-- ARGV 1 token, or what all attempts' tokens begin with  2 ms to keep the answer  3 answer; "": forget  4 fingerprint
-- Returns 1 if the token still held the lock or has stored the answer, 0 if another request has begun since.
-- An expired lease or record is ignored unless another request has begun.
local function is_own(text)
  return text and string.sub(text, 1, #ARGV[1]) == ARGV[1]
end

local record = redis.call('HMGET', KEYS[2], 'token', 'answer')
local holder = redis.call('GET', KEYS[1])
local held = is_own(holder)
if held then
  redis.call('DEL', KEYS[1]) -- first: a server that is full lets a script go on that has begun to write
end
local free = not holder or holder == 'reserved' -- for a waiter: see free_mutex in waking
local ended = not record[1] and (held or free) -- the view has run for longer than the record was kept
if not is_own(record[1]) and not (ended and ARGV[3] ~= '') then return held and 1 or 0 end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], 'fingerprint', ARGV[4], 'token', ARGV[1], 'answer', ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
elseif not record[2] then
  redis.call('DEL', KEYS[2])
end
return 1
