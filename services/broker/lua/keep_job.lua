-- Store the submissions of an asynchronous job within the bound of its API key. Jobs of this key that are past their
-- deadlines make room, those with the earliest deadlines first.
--
-- KEYS: 1 jobs of the API key, by deadline
-- ARGV: 1 key prefix  2 id of the job  3 text  4 time to live in ms  5 deadline  6 time before which deadlines are past
--       7 bytes that the job counts  8 bound of bytes  9 time to live of the list of jobs in ms
-- Reply: 1; 0 where jobs before their deadlines leave no room, and nothing was stored

local jobs, prefix, held = KEYS[1], ARGV[1], tonumber(ARGV[7])
local entries = redis.call('ZRANGE', jobs, 0, -1, 'REV', 'WITHSCORES')
for i = 1, #entries, 2 do
  local size, id = string.match(entries[i], '^(%d+) (.*)$')
  local past = tonumber(entries[i + 1]) < tonumber(ARGV[6])
  if past and held + size > tonumber(ARGV[8]) then
    redis.call('ZREM', jobs, entries[i])
    redis.call('DEL', prefix..'note:job:'..id, prefix..'note:done:'..id)
  else
    held = held + size
  end
end
if held > tonumber(ARGV[8]) then return 0 end
redis.call('SET', prefix..'note:job:'..ARGV[2], ARGV[3], 'PX', ARGV[4])
redis.call('ZADD', jobs, ARGV[5], ARGV[7]..' '..ARGV[2])
redis.call('PEXPIRE', jobs, ARGV[9])
return 1
