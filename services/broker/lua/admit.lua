-- Count what a batch of more than one chunk would add to a queue; changes nothing.
--
-- KEYS: 1 queue  2 stream of running jobs
-- ARGV: 1 key prefix  2 ...: job ids
-- Reply: {jobs that are neither known nor answered, jobs queued and running}

local new = 0
for i = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1]..'result:'..ARGV[i], ARGV[1]..'job:'..ARGV[i]) == 0 then new = new + 1 end
end
-- Users of earlier releases may not read the state: pcall.
local state = redis.pcall('GET', ARGV[1]..'state:'..string.sub(KEYS[1], #ARGV[1] + 7))
if state == 'draining' then return {new, 1e9} end
return {new, redis.call('ZCARD', KEYS[1]) + redis.call('XLEN', KEYS[2])}
