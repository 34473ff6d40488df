-- Joined in front of the scripts that queue jobs: which bound `n_new` more jobs of one run would pass (-1 for none): that
-- of the `run`, of which `reserve` jobs may pass the queue's bound whatever others have queued, or the `queue`'s, at twice
-- its bound; `draining` where an operator wants no more. Nil where they may be queued.
local function find_full_bound(depth, n_new, times, prefix, bound, reserve, grader, from, run)
  if bound < 0 or n_new == 0 then return nil end
  if redis.call('GET', prefix..'state:'..grader) == 'draining' then return 'draining' end
  if depth + n_new <= bound then return nil end
  local now, last = unpack(redis.call('HMGET', times, 'now '..from, 'last '..from..' '..run))
  if depth + n_new > 2 * bound then return 'queue' end
  if math.max(0, (last or 0) - (now or from)) + n_new > reserve then return 'run' end
end

