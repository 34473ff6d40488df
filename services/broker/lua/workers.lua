-- List what live workers announce: each text once for each grader, however many workers announce it.
--
-- KEYS: none: Redis wants the right to write those
-- ARGV: 1 key prefix
-- Reply: {name of a worker, announcement, number of workers with it} ...

local names, keys, found, places = redis.call('ZRANGE', ARGV[1]..'workers', 0, -1), {}, {}, {}
for i, name in ipairs(names) do keys[i] = ARGV[1]..'worker:'..name end
for from = 1, #keys, 1000 do
  for i, text in ipairs(redis.call('MGET', unpack(keys, from, math.min(from + 999, #keys)))) do
    if text then
      local name = names[from + i - 1]
      local group = string.match(name, '^[^:]*')..':'..text
      if not places[group] then
        found[#found + 1] = {name, text, 0}
        places[group] = found[#found]
      end
      places[group][3] = places[group][3] + 1
    end
  end
end
return found
