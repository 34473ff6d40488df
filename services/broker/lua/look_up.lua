-- Look up jobs that a process waits for, and have the results of those that are known sent to its inbox.
--
-- KEYS: 1 inbox of this process
-- ARGV: 1 key prefix  2 ...: job ids
-- Reply: for each job its result, 1 if it is queued or running, 0 if Redis knows nothing of it

local inbox, prefix, found = KEYS[1], ARGV[1], {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local result = redis.call('GET', prefix..'result:'..id) or redis.call('GET', prefix..'uncached:'..id)
  if result then found[#found + 1] = result
  else
    local job = prefix..'job:'..id
    local entry, grader = unpack(redis.call('HMGET', job, 'entry', 'grader'))
    local known = false
    if entry == '' then known = redis.call('ZSCORE', prefix..'queue:'..grader, id)
    elseif entry then known = redis.call('XRANGE', prefix..'jobs:'..grader, entry, entry)[1] end
    if known then
      if not redis.call('HGET', job, inbox) then redis.call('HSET', job, inbox, '') end
      found[#found + 1] = 1
    else
      redis.call('DEL', job)
      found[#found + 1] = 0
    end
  end
end
return found
