-- Announce for how much of their time to live results are kept, while memory is short.
--
-- KEYS: 1 share
-- ARGV: 1 share, over 0 and below 1  2 time to live in ms
-- Reply: none

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
