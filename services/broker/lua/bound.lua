-- Joined in front of the scripts that queue jobs: which bound `n_new` more jobs of one run would pass (-1 for none): that
-- of the `run`, of which `reserve` jobs may pass the queue's bound whatever others have queued, that of the API key (`key_part`),
-- whose runs may pass the queue's bound by `tenant_reserve` jobs together, or the `queue`'s, at twice its bound; `draining` where an
-- operator wants no more. Nil where they may be queued.

local function find_full_bound(
  depth, n_new, times, prefix, bound, reserve, grader, from, run, tenant, tenant_reserve, training_from
)
  if bound < 0 or n_new == 0 then return nil end
  if redis.call('GET', prefix..'state:'..grader) == 'draining' then return 'draining' end
  if depth + n_new <= bound then return nil end
  if depth + n_new > 2 * bound then return 'queue' end

  -- Jobs are counted as the distance of turns: from the one handed out now to the last one given.
  local function count(now, last, first)
    local given = redis.call('HMGET', times, now, last)
    return math.max(0, (given[2] or first) - (given[1] or first))
  end
  local queued = {}
  for _, first in ipairs({'0', training_from}) do
    queued[first] = count('now '..first, 'last '..first..' '..tenant, first)
  end
  -- Turns of single runs are counted where workers keep the order of runs (runs.lua).
  local of_run = math.min(queued[from], count('served '..from..' '..tenant, 'run '..from..' '..run, 0))
  if of_run + n_new > reserve then return 'run' end
  if tonumber(tenant_reserve) < 0 then return nil end
  if queued['0'] + queued[training_from] + n_new > bound + tenant_reserve then return 'key_part' end
end
