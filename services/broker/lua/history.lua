-- Joined in front of the scripts that end a start of a job: appends `<unix seconds> <worker> <what>` to its history.
local function note(job, worker, ago_ms, what)
  local time = redis.call('TIME')
  local line = string.format('%.3f %s %s', time[1] + time[2] / 1e6 - ago_ms / 1000, worker, what)
  redis.call('HSET', job, 'history', (redis.call('HGET', job, 'history') or '')..line..'\n')
end

