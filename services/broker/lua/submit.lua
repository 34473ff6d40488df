-- Queue the jobs that are neither queued, running nor answered, in the next turns of one run; all of them or, past the
-- bound, none. A job that another run queued already moves up if this run's next turn is sooner. Uses
-- `find_full_bound` of bound.lua.
--
-- KEYS: 1 queue  2 virtual times  3 wake-up list  4 stream of running jobs  5 inbox of this process
-- ARGV: 1 key prefix
--       2 bound of jobs queued and running, -1 for none
--       3 jobs of the run that may pass it
--       4 grader
--       5 first virtual time of the priority of these jobs
--       6 run
--       7 jobs of all runs of its API key that may pass the bound
--       8 time to live of everything written, in ms
--       9 first virtual time of training
--       10 number of fair shares from which on idle ones are forgotten
--       11 wake-up tokens kept
--       12, 13 ...: id and payload of each job
-- Reply: the bound that is passed, or id and result, in turns, of each job that has a cached result

local queue, times, wakeup, stream, inbox = unpack(KEYS)
local prefix, bound, reserve, grader, from, run = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), unpack(ARGV, 4, 6)
local key_reserve, ttl, training_from = ARGV[7], ARGV[8], ARGV[9]
local max_shares, max_tokens = tonumber(ARGV[10]), tonumber(ARGV[11])
local answered, known, new = {}, {}, {}
local n_queued, n_running = redis.call('ZCARD', queue), redis.call('XLEN', stream)

-- A job record alone says little: a Redis that lost its last writes may have kept it without its place in the queue.
local function is_known(id)
  local entry = redis.call('HGET', prefix..'job:'..id, 'entry')
  if entry == '' then return redis.call('ZSCORE', queue, id) end
  return entry and redis.call('XRANGE', stream, entry, entry)[1]
end

for i = 12, #ARGV, 2 do
  local result = redis.call('GET', prefix..'result:'..ARGV[i])
  if result then
    answered[#answered + 1] = ARGV[i]
    answered[#answered + 1] = result
  elseif is_known(ARGV[i]) then known[#known + 1] = i
  else new[#new + 1] = i end
end
local passed = find_full_bound(n_queued + n_running, #new, times, prefix, bound, reserve, grader, from, run, key_reserve)
if passed then return passed end

if n_queued == 0 then redis.call('DEL', times) end
local share = 'last '..from..' '..run
local now = tonumber(redis.call('HGET', times, 'now '..from) or from)
local time = math.max(now, tonumber(redis.call('HGET', times, share) or from))
for _, i in ipairs(known) do
  local job = prefix..'job:'..ARGV[i]
  local runs = redis.call('HGET', job, inbox) or ''
  if not string.find('\n'..runs..'\n', '\n'..run..'\n', 1, true) then
    redis.call('HSET', job, inbox, runs == '' and run or runs..'\n'..run)
  end
  redis.call('DEL', prefix..'uncached:'..ARGV[i])  -- it may have been revoked before
  local has = redis.call('ZSCORE', queue, ARGV[i])
  if has and tonumber(has) > time + 1 then
    time = time + 1
    redis.call('ZADD', queue, time, ARGV[i])
  end
end
local places, tokens, old = {}, {}, {}
for n, i in ipairs(new) do
  local job = prefix..'job:'..ARGV[i]
  time = time + 1
  redis.call('HSET', job, 'grader', grader, 'payload', ARGV[i + 1], 'entry', '', 'starts', 0, 'turn', time,
    'history', '', inbox, run)
  redis.call('PEXPIRE', job, ttl)
  places[2 * n - 1], places[2 * n], tokens[n], old[n] = time, ARGV[i], 1, prefix..'uncached:'..ARGV[i]
end
if redis.call('HLEN', times) > max_shares then
  local all = redis.call('HGETALL', times)
  local floor = {['0'] = redis.call('HGET', times, 'now 0') or 0}
  floor[training_from] = redis.call('HGET', times, 'now '..training_from) or training_from
  for i = 1, #all, 2 do
    local of = string.match(all[i], '^last (%d+) ')
    if of and tonumber(all[i + 1]) <= tonumber(floor[of]) then redis.call('HDEL', times, all[i]) end
  end
end
redis.call('HSET', times, share, time)
if #new > 0 then
  redis.call('ZADD', queue, unpack(places))
  redis.call('DEL', unpack(old))
  redis.call('RPUSH', wakeup, unpack(tokens))
  redis.call('LTRIM', wakeup, 0, max_tokens - 1)
end
for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], ttl) end
return answered
