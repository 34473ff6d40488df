-- Joined in front of every script: in a cluster, end it before it writes while the keys of its partition move to another
-- master. From then on a command on a key that moved, or that does not exist, would end the script in its middle.
local partition = KEYS[1] and string.match(KEYS[1], '^[^{]*{%d+}:')
if partition then redis.call('EXISTS', partition..'probe') end  -- there is no such key

