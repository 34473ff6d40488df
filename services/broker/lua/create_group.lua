-- Create the consumer group of a stream, and the stream, unless they exist.
--
-- KEYS: 1 stream of running jobs
-- ARGV: 1 consumer group  2 time to live of the stream in ms
-- Reply: none

local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], 0, 'MKSTREAM')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
