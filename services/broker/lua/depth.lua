-- Count the jobs of one grader that are queued or running.
--
-- KEYS: 1 queue  2 stream of running jobs
-- Reply: their number

return redis.call('ZCARD', KEYS[1]) + redis.call('XLEN', KEYS[2])
