-- End jobs for every process that waits: each inbox gets the result, a queued job is dropped, a running one unwanted.
-- Uses `drop` of runs.lua.
--
-- KEYS: 1 queue
-- ARGV: 1 key prefix  2 how keys of inboxes begin  3 result  4 its time to live in ms  5 results that an inbox holds
--       6 run that alone may wait, or '' for any  7 ...: job ids
-- Reply: number of jobs that were ended

local prefix, inboxes, result, ttl, max_inbox, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local ended = 0
for i = 7, #ARGV do
  local id, job, waiting, fits = ARGV[i], prefix..'job:'..ARGV[i], {}, true
  local fields = redis.call('HGETALL', job)
  for n = 1, #fields, 2 do
    if fields[n] == 'grader' and prefix..'queue:'..fields[n + 1] ~= KEYS[1] then fits = false end
    if string.find(fields[n], inboxes, 1, true) == 1 then
      waiting[#waiting + 1] = fields[n]
      fits = fits and (run == '' or fields[n + 1] == run)
    end
  end
  if #waiting > 0 and fits then
    ended = ended + 1
    redis.call('SET', prefix..'uncached:'..id, result, 'PX', ttl)
    for _, inbox in ipairs(waiting) do
      redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', max_inbox, '*', 'id', id, 'result', result)
      redis.call('HDEL', job, inbox)
    end
    if redis.call('HGET', job, 'entry') == '' then
      redis.call('ZREM', KEYS[1], id)
      drop(get_runs(prefix, KEYS[1]), id)
      redis.call('DEL', job)
    end
  end
end
return ended
