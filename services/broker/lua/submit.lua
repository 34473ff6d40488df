-- Queue the jobs that are neither queued, running nor answered, in the next turns of their tenant, and within those in
-- the next ones of their run; all of them or, past the bound, none. A job that another run queued already moves up if this
-- run's next turn is sooner. Uses `find_full_bound` of bound.lua and `enter` of runs.lua.
--
-- KEYS: 1 queue  2 virtual times  3 wake-up list  4 stream of running jobs  5 inbox of this process
-- ARGV: 1 key prefix
--       2 bound of jobs queued and running, -1 for none
--       3 jobs of the run that may pass it
--       4 grader
--       5 first virtual time of the priority of these jobs
--       6 run
--       7 tenant: its API key, or the run itself in a service without keys
--       8 jobs of all runs of the tenant that may pass the bound, -1 where it is one run
--       9 first virtual time of training
--       10 time to live of everything written, in ms
--       11 number of fair shares from which on idle ones are forgotten
--       12 wake-up tokens kept
--       13, 14 ...: id and payload of each job
-- Reply: the bound that is passed, or id and result, in turns, of each job that has a cached result

local queue, times, wakeup, stream, inbox = unpack(KEYS)
local prefix, bound, reserve, grader, from, run = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), unpack(ARGV, 4, 6)
local tenant, tenant_reserve, training_from, ttl = unpack(ARGV, 7, 10)
local max_shares, max_tokens = tonumber(ARGV[11]), tonumber(ARGV[12])
local answered, known, new = {}, {}, {}
local n_queued, n_running = redis.call('ZCARD', queue), redis.call('XLEN', stream)

-- A job record alone says little: a Redis that lost its last writes may have kept it without its place in the queue.
local function is_known(id)
  local entry = redis.call('HGET', prefix..'job:'..id, 'entry')
  if entry == '' then return redis.call('ZSCORE', queue, id) end
  return entry and redis.call('XRANGE', stream, entry, entry)[1]
end

for i = 13, #ARGV, 2 do
  local result = redis.call('GET', prefix..'result:'..ARGV[i])
  if result then
    answered[#answered + 1] = ARGV[i]
    answered[#answered + 1] = result
  elseif is_known(ARGV[i]) then known[#known + 1] = i
  else new[#new + 1] = i end
end
local passed = find_full_bound(
  n_queued + n_running, #new, times, prefix, bound, reserve, grader, from, run, tenant, tenant_reserve, training_from
)
if passed then return passed end

local runs, owner, has_runs = get_runs(prefix, queue), from..' '..tenant, tonumber(tenant_reserve) >= 0
local function find_last(now, last, first)
  local given = redis.call('HMGET', times, now, last)
  return math.max(given[1] or first, given[2] or first)
end

if n_queued == 0 then
  redis.call('DEL', times)
  redis.pcall('DEL', runs)
end
local of_tenant, of_run = 'last '..owner, 'run '..from..' '..run
local time, turn = find_last('now '..from, of_tenant, from), find_last('served '..owner, of_run, 0)
for _, i in ipairs(known) do
  local job = prefix..'job:'..ARGV[i]
  local waiting = redis.call('HGET', job, inbox) or ''
  if not string.find('\n'..waiting..'\n', '\n'..run..'\n', 1, true) then
    redis.call('HSET', job, inbox, waiting == '' and run or waiting..'\n'..run)
  end
  redis.call('DEL', prefix..'uncached:'..ARGV[i])  -- it may have been revoked before
  local has = redis.call('ZSCORE', queue, ARGV[i])
  local holder, at = find_place(runs, ARGV[i])
  local is_sooner = has and holder ~= owner and tonumber(has) > time + 1
  if is_sooner then
    time = time + 1
    redis.call('ZADD', queue, time, ARGV[i])
  end
  if is_sooner or has and holder == owner and tonumber(at) > turn + 1 then
    turn = turn + 1
    if holder then leave(runs, ARGV[i], holder, at) end
    if has_runs then enter(runs, ARGV[i], owner, turn) end
  end
end
local places, tokens, old = {}, {}, {}
for n, i in ipairs(new) do
  local job = prefix..'job:'..ARGV[i]
  time, turn = time + 1, turn + 1
  if has_runs then enter(runs, ARGV[i], owner, turn) end
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
    if string.sub(all[i], 1, 7) == 'served ' then floor[string.sub(all[i], 8)] = all[i + 1] end
  end
  for i = 1, #all, 2 do
    local of = string.match(all[i], '^last (%d+) ') or string.match(all[i], '^run (%d+ [^ ]*)')
    if of and tonumber(all[i + 1]) <= tonumber(floor[of] or 0) then redis.call('HDEL', times, all[i]) end
  end
end
redis.call('HSET', times, of_tenant, time, of_run, turn)
if #new > 0 then
  redis.call('ZADD', queue, unpack(places))
  redis.call('DEL', unpack(old))
  redis.call('RPUSH', wakeup, unpack(tokens))
  redis.call('LTRIM', wakeup, 0, max_tokens - 1)
end
for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], ttl) end
redis.pcall('PEXPIRE', runs, ttl)
return answered
