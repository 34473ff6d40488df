-- Create an inbox.
--
-- KEYS: 1 inbox
-- ARGV: 1 time to live in ms
-- Reply: id of its first entry, which holds no result

local first = redis.call('XADD', KEYS[1], '*', 'opened', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return first
