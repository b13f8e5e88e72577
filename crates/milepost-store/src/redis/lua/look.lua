-- A visitor waits for somebody: others' leases are looked at, though it has none.
reap()
call('HSET', M .. 'heard', 'at', clock)
local more = free_orphans()
flush()
return { more and 1 or 0, string.format('%.0f', clock) }
