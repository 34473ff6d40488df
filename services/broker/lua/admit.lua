-- Check a batch of more than one chunk against the bound of a queue; changes nothing. Uses `find_full_bound` of bound.lua.
--
-- KEYS: 1 queue  2 virtual times  3 wake-up list (unused)  4 stream of running jobs
-- ARGV: 1 key prefix  2 bound of jobs queued and running, -1 for none  3 jobs of the run that may pass it  4 grader
--       5 first virtual time of the priority of these jobs  6 run  7 tenant
--       8 jobs of all runs of the tenant that may pass it, -1 where it is one run  9 first virtual time of training
--       10 ...: job ids
-- Reply: the bound that is passed, or nothing

local depth, new = redis.call('ZCARD', KEYS[1]) + redis.call('XLEN', KEYS[4]), 0
for i = 10, #ARGV do
  if redis.call('EXISTS', ARGV[1]..'result:'..ARGV[i], ARGV[1]..'job:'..ARGV[i]) == 0 then new = new + 1 end
end
return find_full_bound(depth, new, KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), unpack(ARGV, 4, 9))
