-- Begin a request with an idempotency key, or return the stored answer to it. Idempotent per token.
-- KEYS 1 lock (a mutex)  2 record (a hash, which outlives the lock of a process that dies)
-- ARGV 1 token  2 owner (JSON)  3 ttl in ms  4 fingerprint  5 ms to keep the record  6 in doubt ("run" or "refuse")
-- Returns the server's time in µs; {0, lease left in ms, time, owner of the holder} while another request runs;
--   {0, 0, time, reason, 0, answer}: "mismatch" for another fingerprint, "answer", or "in_doubt" if the process of an
--   earlier request has died or could not store its answer.
local held = redis.call('GET', KEYS[1])
if held == 'reserved' then held = false end -- for a waiter: see free_mutex in waking
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]
local record = redis.call('HMGET', KEYS[2], 'fingerprint', 'token', 'answer')
local fingerprint, token, answer = record[1], record[2], record[3]
local function is_own(text)
  return text and string.sub(text, 1, #ARGV[1]) == ARGV[1]
end

if fingerprint and fingerprint ~= ARGV[4] then return {0, 0, micros, 'mismatch', 0, ''} end
if answer then return {0, 0, micros, 'answer', 0, answer} end
if held and not is_own(held) then
  local space = string.find(held, ' ', 1, true) -- the text before it is the holder's secret token
  return {0, redis.call('PTTL', KEYS[1]), micros, space and string.sub(held, space + 1) or ''}
end
if token and not is_own(token) and ARGV[6] ~= 'run' then return {0, 0, micros, 'in_doubt', 0, ''} end

redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
redis.call('HSET', KEYS[2], 'fingerprint', ARGV[4], 'token', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return micros
