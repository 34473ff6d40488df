-- Store the results of claimed jobs, send each to every inbox that waits, and forget the jobs. An error in one job
-- changes nothing for the others.
--
-- KEYS: four of each job: stream of running jobs, result or uncached result, dead letters, job record
-- ARGV: 1 consumer group  2 results that an inbox holds  3 time to live of dead letters in ms
--       4 how keys of inboxes begin  5 key of shorten.lua  6 shortest time to live in ms of a result
--       7 ...: six of each job: stream entry, job id, result, its time to live in ms, dead letters kept (0 if this job
--       is none), payload for the dead letter
-- Reply: of each job 1, or 0 if the claim had lapsed and the job was finished by another; then nothing was changed.
--        The text of the error where there was one

local group, max_inbox, letter_ttl, inboxes, min_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local share = redis.pcall('GET', ARGV[5])  -- users of earlier releases may not read it

local function finish(stream, stored, dead, job, entry, id, result, ttl, max_letters, payload)
  if redis.call('XACK', stream, group, entry) == 0 then return 0 end
  if max_letters ~= '0' then
    local history = redis.call('HGET', job, 'history') or ''
    redis.call('XADD', dead, 'MAXLEN', max_letters, '*', 'id', id, 'payload', payload, 'history', history)
    redis.call('PEXPIRE', dead, letter_ttl)
  end
  redis.call('XDEL', stream, entry)
  if type(share) == 'string' then ttl = math.max(math.floor(ttl * share), math.min(ttl, min_ttl)) end
  redis.call('SET', stored, result, 'PX', ttl)
  for _, inbox in ipairs(redis.call('HKEYS', job)) do
    if string.find(inbox, inboxes, 1, true) == 1 then
      redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', max_inbox, '*', 'id', id, 'result', result)
    end
  end
  redis.call('DEL', job)
  return 1
end

local replies = {}
for n = 0, #KEYS / 4 - 1 do
  local k, a = 4 * n, 6 + 6 * n
  local is_done, reply = pcall(finish, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], unpack(ARGV, a + 1, a + 6))
  replies[n + 1] = is_done and reply or type(reply) == 'table' and reply.err or tostring(reply)
end
return replies
