-- Joined in front of the scripts that end a start of a job: appends `<unix seconds> <worker> <what>` to its history.
local LAPSED = 'let its lease lapse'
local function note(job, worker, ago_ms, what)
  local time = redis.call('TIME')
  local line = string.format('%.3f %s %s', time[1] + time[2] / 1e6 - ago_ms / 1000, worker, what)
  redis.call('HSET', job, 'history', (redis.call('HGET', job, 'history') or '')..line..'\n')
end

-- The job did not kill a worker that lives on: its start stops counting. A second call finds no such line.
local function uncount_lapse(job, worker)
  local history = redis.call('HGET', job, 'history') or ''
  local from, to = string.find(history, ' '..worker..' '..LAPSED..'\n', 1, true)
  if not from then return end
  local line = ' '..worker..' lived on after its lease lapsed\n'
  redis.call('HSET', job, 'history', string.sub(history, 1, from - 1)..line..string.sub(history, to + 1))
  redis.call('HINCRBY', job, 'starts', -1)
end

