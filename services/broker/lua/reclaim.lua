-- Claim jobs whose lease lapsed or whose worker is silent; a job on its last permitted start only by itself, for a worker that holds nothing.
-- On the way, repair the oldest stream entries that a Redis that lost its last writes left without a lease.
-- Uses `note` of history.lua.
--
-- KEYS: 1 queue  2 virtual times (unused)  3 wake-up list  4 stream of running jobs
-- ARGV: 1 key prefix  2 consumer group  3 worker  4 lease in ms  5 most jobs to claim  6 permitted starts of a job
--       7 '1' if the worker holds nothing  8 time to live in ms
--       9 ms after which idle consumers without a lease are removed, 0 to remove none
--       10 number of fields of a job record without inboxes  11 most entries to repair
--       12 key of the looks  13 ms without a renewal after which a worker is dead
--       14 longest ms between looks in which workers were surely able to renew, where half a lease is not less
-- Reply: {1 if a job waits to be run alone, jobs as take.lua replies}
-- Error: NOGROUP

local queue, _, wakeup, stream = unpack(KEYS)
local prefix, group, worker, lease, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local max_starts, empty_handed, ttl, idle_ms = tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8], ARGV[9]
local n_fields, max_repairs = tonumber(ARGV[10]), tonumber(ARGV[11])

local consumers = idle_ms ~= '0' and redis.pcall('XINFO', 'CONSUMERS', stream, group) or {}
for _, consumer in ipairs(consumers) do  -- an error is none: there is no group yet
  if consumer[4] == 0 and consumer[6] > tonumber(idle_ms) then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2])
  end
end

local function id_in(found)
  return found and found[2][1] == 'id' and found[2][2]
end

local function repair(found)
  local id = id_in(found)
  local job = id and prefix..'job:'..id
  redis.call('XDEL', stream, found[1])
  if not id or redis.call('HGET', job, 'entry') ~= found[1] then return end
  if redis.call('HLEN', job) <= n_fields then return redis.call('DEL', job) end
  redis.call('HSET', job, 'entry', '')
  redis.call('ZADD', queue, redis.call('HGET', job, 'turn') or 0, id)
  redis.call('RPUSH', wakeup, 1)
  for _, key in ipairs({queue, wakeup}) do redis.call('PEXPIRE', key, ttl) end
end

-- Whatever is in the stream is under a lease, or about to be. So the oldest is looked at, and put right, and the next.
-- (An entry that no worker read yet may be put back, too.)
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
for _ = 1, max_repairs do
  if #oldest == 0 then return {0, {}} end
  if redis.call('XPENDING', stream, group, oldest[1][1], oldest[1][1], 1)[1] then break end
  repair(oldest[1])
  oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
end

-- A worker renews its leases every second: one that did not for a while is dead, unless no worker could. So the looks are
-- kept, as `<time of the last> <time of the first after an interruption> <length of that interruption>` in ms. Until the
-- workers had time to renew after an interruption, it counts towards no lease. Users of earlier releases may not: pcall.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local looks = redis.pcall('GET', ARGV[12])
local last, first, lost = string.match(type(looks) == 'string' and looks or '', '^(%d+) (%d+) (%d+)$')
local longest = math.min(ARGV[14], lease / 2)
if not last then first, lost = now, 0
elseif now - last > longest then
  -- An interruption that follows before workers had time to renew goes on with the one before: a long one only, as with short
  -- leases every look may come late.
  local is_long = now - last > tonumber(ARGV[14])
  if is_long and last - first < tonumber(ARGV[13]) then lost = now - first + lost else lost = now - last end
  first = now
end
redis.pcall('SET', ARGV[12], string.format('%.0f %.0f %.0f', now, first, lost), 'PX', ttl)
if now - first < tonumber(ARGV[13]) then lease = lease + lost else lease = math.min(lease, ARGV[13]) end

local idle = redis.call('XPENDING', stream, group, 'IDLE', lease, '-', '+', limit)
redis.call('PEXPIRE', stream, ttl)

local function id_of(entry)  -- nil: there is no such job, or no inbox is left for it
  local id = id_in(redis.call('XRANGE', stream, entry, entry)[1])
  local job = id and prefix..'job:'..id
  if not id or redis.call('HGET', job, 'entry') ~= entry then return nil end
  if redis.call('HLEN', job) > n_fields then return id end
  redis.call('DEL', job)
end

local function take(entry, times, id, holder, lapsed_ms)
  local job = prefix..'job:'..id
  note(job, holder, lapsed_ms, LAPSED)
  redis.call('XCLAIM', stream, group, worker, lease, entry)
  local starts = redis.call('HINCRBY', job, 'starts', 1)
  return {entry, times + 1, id, redis.call('HGET', job, 'payload') or '', starts, now}
end

local lapsed = {}
for _, pending in ipairs(idle) do
  local entry, times = pending[1], pending[4]
  local id = id_of(entry)
  if not id then
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  elseif redis.call('HGET', prefix..'job:'..id, 'starts') + 1 == max_starts then
    if not empty_handed then return {1, {}} end
    return {0, {take(entry, times, id, pending[2], pending[3])}}
  else lapsed[#lapsed + 1] = {entry, times, id, pending[2], pending[3]} end
end
local taken = {}
for i, pending in ipairs(lapsed) do taken[i] = take(unpack(pending)) end
return {0, taken}
