-- Joined in front of the scripts that queue jobs: which bound `n_new` more jobs of one run would pass (-1 for none): that
-- of the `run`, of which `reserve` jobs may pass the queue's bound whatever others have queued, that of the API key (`key_part`),
-- whose runs may pass the queue's bound by `key_reserve` jobs together, or the `queue`'s, at twice its bound; `draining` where an
-- operator wants no more. Nil where they may be queued.

-- Jobs of all runs of an API key in both priorities. A run is named `KEY` or `KEY RUN`.
local function count_backlog(times, key)
  local fields, values, backlog = redis.call('HGETALL', times), {}, 0
  for i = 1, #fields, 2 do values[fields[i]] = tonumber(fields[i + 1]) end
  for name, last in pairs(values) do
    local from, owner = string.match(name, '^last (%d+) ([^ ]*)')
    if owner == key then backlog = backlog + math.max(0, last - (values['now '..from] or from)) end
  end
  return backlog
end

local function find_full_bound(depth, n_new, times, prefix, bound, reserve, grader, from, run, key_reserve)
  if bound < 0 or n_new == 0 then return nil end
  if redis.call('GET', prefix..'state:'..grader) == 'draining' then return 'draining' end
  if depth + n_new <= bound then return nil end
  local now, last = unpack(redis.call('HMGET', times, 'now '..from, 'last '..from..' '..run))
  if depth + n_new > 2 * bound then return 'queue' end
  if math.max(0, (last or 0) - (now or from)) + n_new > reserve then return 'run' end
  local key = string.match(run, '^[^ ]*')
  if key ~= 'default' and count_backlog(times, key) + n_new > bound + key_reserve then return 'key_part' end
end
