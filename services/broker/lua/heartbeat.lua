-- Keep what a live worker announces. Workers that ended without leaving stay in the list of names for a while.
--
-- KEYS: 1 live workers  2 announcement of this worker
-- ARGV: 1 worker  2 announcement  3 its time to live in ms, 0 if the worker leaves  4 time to live of key 1 in ms
--       5 ms for which the name of a dead worker is kept
-- Reply: none

local workers, worker, name, info, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ttl > 0 then
  redis.call('SET', worker, info, 'PX', ttl)
  redis.call('ZADD', workers, now + ttl, name)
else
  redis.call('DEL', worker)
  redis.call('ZREM', workers, name)
end
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - ARGV[5])
redis.call('PEXPIRE', workers, ARGV[4])
