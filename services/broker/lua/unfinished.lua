-- Describe unfinished jobs for operators.
--
-- KEYS: none
-- ARGV: 1 key prefix  2 how keys of inboxes begin  3 ...: job ids
-- Reply: for each job that there is {id, 1 if it runs, starts, runs of each inbox that waits, in lines}

local found = {}
for i = 3, #ARGV do
  local fields, record, runs = redis.call('HGETALL', ARGV[1]..'job:'..ARGV[i]), {}, {}
  for n = 1, #fields, 2 do
    record[fields[n]] = fields[n + 1]
    if string.find(fields[n], ARGV[2], 1, true) == 1 then runs[#runs + 1] = fields[n + 1] end
  end
  if record.entry then
    found[#found + 1] = {ARGV[i], record.entry == '' and 0 or 1, tonumber(record.starts), table.concat(runs, '\n')}
  end
end
return found
