-- Take one inbox off jobs; a queued one that no inbox is left for is dropped. Uses `drop` of
-- runs.lua.
--
-- KEYS: 1 queue  2 inbox of this process
-- ARGV: 1 key prefix  2 number of fields of a job record without inboxes  3 ...: job ids
-- Reply: none

for i = 3, #ARGV do
  local job = ARGV[1]..'job:'..ARGV[i]
  redis.call('HDEL', job, KEYS[2])
  if redis.call('HGET', job, 'entry') == '' and redis.call('HLEN', job) == tonumber(ARGV[2]) then
    redis.call('ZREM', KEYS[1], ARGV[i])
    drop(get_runs(ARGV[1], KEYS[1]), ARGV[i])
    redis.call('DEL', job)
  end
end
