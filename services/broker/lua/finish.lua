-- Store the result of a claimed job, send it to every inbox that waits, and forget the job.
--
-- KEYS: 1 stream of running jobs  2 result or uncached result  3 dead letters  4 job record
-- ARGV: 1 consumer group  2 stream entry  3 job id  4 result  5 its time to live in ms  6 results that an inbox holds
--       7 dead letters kept, 0 if this job is none  8 payload for the dead letter  9 its time to live in ms
--       10 how keys of inboxes begin  11 key of shorten.lua  12 shortest time to live in ms of a result
-- Reply: 1, or 0 if the claim had lapsed and the job was finished by another; then nothing was changed

local stream, stored, dead, job = unpack(KEYS)
local group, entry, id, result, ttl, max_inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if redis.call('XACK', stream, group, entry) == 0 then return 0 end
if ARGV[7] ~= '0' then
  local history = redis.call('HGET', job, 'history') or ''
  redis.call('XADD', dead, 'MAXLEN', ARGV[7], '*', 'id', id, 'payload', ARGV[8], 'history', history)
  redis.call('PEXPIRE', dead, ARGV[9])
end
redis.call('XDEL', stream, entry)
local share = redis.pcall('GET', ARGV[11])  -- users of earlier releases may not read it
if type(share) == 'string' then ttl = math.max(math.floor(ttl * share), math.min(ttl, ARGV[12])) end
redis.call('SET', stored, result, 'PX', ttl)
for _, inbox in ipairs(redis.call('HKEYS', job)) do
  if string.find(inbox, ARGV[10], 1, true) == 1 then
    redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', max_inbox, '*', 'id', id, 'result', result)
  end
end
redis.call('DEL', job)
return 1
