-- Joined in front of the scripts that queue jobs: whether `n_new` more jobs of one run would pass the bound (-1 for none).
-- `reserve` jobs of a run may pass it, whatever other runs have queued, up to twice the bound in all.
local function is_full(depth, n_new, times, prefix, bound, reserve, grader, from, run)
  if bound < 0 or n_new == 0 then return false end
  if redis.call('GET', prefix..'state:'..grader) == 'draining' then return true end
  if depth + n_new <= bound then return false end
  local now, last = unpack(redis.call('HMGET', times, 'now '..from, 'last '..from..' '..run))
  return math.max(0, (last or 0) - (now or from)) + n_new > reserve or depth + n_new > 2 * bound
end

