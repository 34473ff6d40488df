-- Start the leases of claims anew, those that the worker still holds. A lease that lapsed meanwhile does not count as a
-- start: its worker lives. Uses `uncount_lapse` of history.lua.
--
-- KEYS: 1 stream of running jobs
-- ARGV: 1 key prefix  2 consumer group  3 number of fields of a job record without inboxes
--       4, 5, 6, 7 ...: job id, stream entry, deliveries of that entry and worker of each claim
-- Reply: stream entries of jobs that no inbox is left for
-- Error: NOGROUP

local prefix, group, n_fields, unwanted = ARGV[1], ARGV[2], tonumber(ARGV[3]), {}
for i = 4, #ARGV, 4 do
  local job, entry, times, worker = prefix..'job:'..ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local pending = redis.call('XPENDING', KEYS[1], group, entry, entry, 1)[1]
  if pending and pending[2] == worker and pending[4] == times then
    redis.call('XCLAIM', KEYS[1], group, worker, 0, entry, 'JUSTID')
    if redis.call('HGET', job, 'entry') == entry and redis.call('HLEN', job) == n_fields then
      unwanted[#unwanted + 1] = entry
    end
  else uncount_lapse(job, worker) end
end
return unwanted
