-- Joined in front of the scripts that queue, take or drop jobs: the order of the queued jobs of a tenant with several runs by
-- the turns of the runs. `runs:<grader>` has two lines for each, sorted as text: `in`, owner, time, id and `of`, id, owner, time. The owner is
-- `<first virtual time of the priority> <tenant>`. ACL files of earlier releases do not name this key: pcall. Jobs without
-- these lines go in the order of the queue.

local function get_runs(prefix, queue) return prefix..'runs:'..string.sub(queue, #prefix + 7) end

local function find_first(runs, beginning)
  local found = redis.pcall('ZRANGE', runs, '['..beginning, '('..beginning..'\255', 'BYLEX', 'LIMIT', 0, 1)
  return found[1] or ''
end

local function find_place(runs, id)  -- owner and time, or nothing
  return string.match(find_first(runs, 'of\n'..id..'\n'), '\n([^\n]*)\n(%d+)$')
end

local function find_next(runs, owner)  -- time and id, or nothing
  return string.match(find_first(runs, 'in\n'..owner..'\n'), '\n(%d+)\n([^\n]*)$')
end

local function write_lines(id, owner, digits)
  return 'in\n'..owner..'\n'..digits..'\n'..id, 'of\n'..id..'\n'..owner..'\n'..digits
end

local function enter(runs, id, owner, time)
  local first, second = write_lines(id, owner, string.format('%014.0f', time))
  redis.pcall('ZADD', runs, 0, first, 0, second)
end

local function leave(runs, id, owner, digits) redis.pcall('ZREM', runs, write_lines(id, owner, digits)) end

local function drop(runs, id)
  local owner, digits = find_place(runs, id)
  if owner then leave(runs, id, owner, digits) end
end

