-- Move the next jobs from the queue to the stream, and there to one worker. Uses `leave` of runs.lua.
--
-- KEYS: 1 queue  2 virtual times  3 wake-up list  4 stream of running jobs
-- ARGV: 1 key prefix  2 consumer group  3 worker  4 most jobs to take  5 time to live in ms
--       6 '1' if the worker took a wake-up token  7 first virtual time of training
--       8 which part of the jobs that are claimed while both priorities wait is training's: 5 for a fifth
--       9 most bytes of a payload, 0 for any  10 jobs of each priority among which one of this size is looked for
-- Reply: for each job {stream entry, deliveries of that entry, job id, payload, starts of the job, time of the claim in ms}
-- Error: NOGROUP, before anything was moved

local queue, times, wakeup, stream = unpack(KEYS)
local prefix, group, worker, limit, ttl, training_from = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[7]
local n_queued = redis.call('ZCARD', queue)
if n_queued == 0 and redis.call('XLEN', stream) == 0 then  -- the usual case of an idle worker: be brief
  if ARGV[6] == '1' then redis.call('DEL', wakeup) end
  return {}
end
-- Users of earlier releases may not read the state: pcall.
if redis.pcall('GET', prefix..'state:'..string.sub(queue, #prefix + 7)) == 'paused' then return {} end
local taken, clock = {}, redis.call('TIME')
local claimed_at = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function read(count)
  local reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', count, 'STREAMS', stream, '>')
  return reply and reply[1][2] or {}
end

local function pick_up(entry)
  local id = entry[2][1] == 'id' and entry[2][2] or ''
  local job = prefix..'job:'..id
  if redis.call('HGET', job, 'entry') == entry[1] then
    local starts = redis.call('HINCRBY', job, 'starts', 1)
    taken[#taken + 1] = {entry[1], 1, id, redis.call('HGET', job, 'payload') or '', starts, claimed_at}
  else  -- no job: it could never be finished, and its entry would be redelivered for ever
    redis.call('XACK', stream, group, entry[1])
    redis.call('XDEL', stream, entry[1])
  end
end

-- The next job and its virtual time. Evaluation has the lowest ones: while training waits too, it gets its part.
local function pop()
  local first = redis.call('ZPOPMIN', queue)
  if not first[2] or tonumber(first[2]) > tonumber(training_from) then return unpack(first) end
  local other = redis.call('ZRANGE', queue, training_from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if not other[1] or redis.call('HINCRBY', times, 'evaluation', 1) % ARGV[8] > 0 then return unpack(first) end
  redis.call('ZADD', queue, first[2], first[1])
  redis.call('ZREM', queue, other[1])
  return unpack(other)
end

-- It is the turn of that job's tenant: the job of the tenant's next run starts, and this one gets its place in the queue.
local runs, now = get_runs(prefix, queue), {}
local has_runs = redis.pcall('EXISTS', runs) == 1
local function choose(id)
  local owner = has_runs and find_place(runs, id)
  while owner do
    local turn, chosen = find_next(runs, owner)
    local place = chosen ~= id and redis.call('ZSCORE', queue, chosen)
    leave(runs, chosen, owner, turn)
    if chosen == id or place then now['served '..owner] = turn end
    if chosen == id then return id end
    if place then  -- else a worker of an earlier release took it
      redis.call('ZREM', queue, chosen)
      redis.call('ZADD', queue, place, id)
      return chosen
    end
  end
  return id
end

-- The first job that is small enough, of those that come next.
local function pop_small()
  for _, first in ipairs({'0', training_from}) do
    local next_ones = redis.call('ZRANGE', queue, first, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[10], 'WITHSCORES')
    for i = 1, #next_ones, 2 do
      local size = redis.pcall('HSTRLEN', prefix..'job:'..next_ones[i], 'payload')
      if type(size) == 'number' and size <= tonumber(ARGV[9]) then
        redis.call('ZREM', queue, next_ones[i])
        drop(runs, next_ones[i])
        return next_ones[i], next_ones[i + 1]
      end
    end
  end
end

local function move(id, time)
  local job = prefix..'job:'..id
  local payload, starts = unpack(redis.call('HMGET', job, 'payload', 'starts'))
  if not starts then return end
  local entry = redis.call('XADD', stream, '*', 'id', id)
  redis.call('HSET', job, 'turn', time, 'entry', entry, 'starts', starts + 1)
  now['now '..(tonumber(time) > tonumber(training_from) and training_from or 0)] = time
  taken[#taken + 1] = {entry, 1, id, payload or '', starts + 1, claimed_at}
end

-- Reading comes first: it finds whether the group is there before anything leaves the queue, and it picks up what
-- entered the stream but reached no worker, because the group was lost.
for _, entry in ipairs(read(limit)) do pick_up(entry) end
if n_queued > 0 and #taken < limit then
  local before = #taken
  for _ = 1, math.min(n_queued, limit - before) do
    local id, time
    if ARGV[9] == '0' then
      id, time = pop()
      id = choose(id)
    else id, time = pop_small() end
    if not id then break end
    move(id, time)
  end
  if #taken > before then read(#taken - before) end
  for name, time in pairs(now) do
    if tonumber(time) > tonumber(redis.call('HGET', times, name) or 0) then
      redis.call('HSET', times, name, time)
    end
  end
  redis.call('PEXPIRE', times, ttl)
  if redis.call('ZCARD', queue) == 0 then redis.call('DEL', wakeup) end
end
redis.call('PEXPIRE', stream, ttl)
return taken
