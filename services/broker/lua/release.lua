-- Return a claimed job unfinished: to its old place in the queue or one further back, or, when one permitted start is left, by letting its
-- lease lapse now. A job that no inbox is left for is dropped. Uses `note` of history.lua.
--
-- KEYS: 1 queue  2 virtual times  3 wake-up list  4 stream of running jobs  5 job record
-- ARGV: 1 consumer group  2 stream entry  3 deliveries of that entry  4 worker  5 permitted starts of a job
--       6 lease in ms  7 job id  8 time to live in ms  9 number of fields of a job record without inboxes
--       10 turns to put it off by, 0 for its old place  11 first virtual time of training
-- Reply: none
-- Error: NOGROUP

local queue, wakeup, stream, job = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local group, entry, worker, id, ttl = ARGV[1], ARGV[2], ARGV[4], ARGV[7], ARGV[8]
local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
if not pending or pending[2] ~= worker or pending[4] ~= tonumber(ARGV[3]) then return end
local later, training_from = tonumber(ARGV[10]), tonumber(ARGV[11])
local has, starts, time = unpack(redis.call('HMGET', job, 'entry', 'starts', 'turn'))
local wanted = has == entry and redis.call('HLEN', job) > tonumber(ARGV[9])
if wanted and starts + 1 == tonumber(ARGV[5]) then
  note(job, worker, 0, 'gave it back')
  -- it must run alone, which only reclaiming can arrange
  redis.call('XCLAIM', stream, group, worker, 0, entry, 'IDLE', ARGV[6], 'JUSTID')
  return
end
redis.call('XACK', stream, group, entry)
redis.call('XDEL', stream, entry)
if has ~= entry then return end
if not wanted then return redis.call('DEL', job) end
note(job, worker, 0, later > 0 and 'put it off' or 'gave it back')
redis.call('HSET', job, 'entry', '')
if later > 0 then
  local from = tonumber(time) > training_from and ARGV[11] or '0'
  time = (redis.call('HGET', KEYS[2], 'now '..from) or from) + later
end
redis.call('ZADD', queue, time, id)
redis.call('RPUSH', wakeup, 1)
redis.call('PEXPIRE', queue, ttl)
redis.call('PEXPIRE', wakeup, ttl)
