-- A node takes its place, and that of an earlier one of its name at once.
-- name, boot id, process id, length of a lease, how long nobody may be heard of.
local name, boot, pid, lease = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], tonumber(ARGV[FIRST + 3])
hear(lease, ARGV[FIRST + 4])
local key = M .. 'node:' .. name
local before = call('HGET', key, 'session')
if before and is_member(before) then end_session(before) end
if before then call('SREM', SETTLED_SESSIONS, before) end
local session = call('HINCRBY', COUNTERS, 'session', 1)
call('ZADD', M .. 'sessions', clock + lease, session)
call('HSET', key, 'session', session, 'boot', boot, 'pid', pid, 'started', clock, 'seen', clock, 'hand', 0, 'capacity', 0)
call('ZADD', M .. 'nodes', clock, name)
reap()
local more = free_orphans()
flush()
return { session, more and 1 or 0 }
