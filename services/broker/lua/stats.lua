-- Count the jobs of one grader by state.
--
-- KEYS: 1 queue  2 stream of running jobs  3 dead letters
-- ARGV: 1 consumer group
-- Reply: {queued, running, running and delivered before (of the first 1,000), dead letters}

local queue, stream, dead = unpack(KEYS)
local restarted, pending = 0, redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1000)
for _, entry in ipairs(pending.err and {} or pending) do
  if entry[4] > 1 then restarted = restarted + 1 end
end
return {redis.call('ZCARD', queue), redis.call('XLEN', stream), restarted, redis.call('XLEN', dead)}
