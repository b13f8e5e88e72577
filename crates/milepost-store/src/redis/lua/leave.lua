-- A node stops in good order; what it still has is an orphan's at once.
if me ~= '' and is_member(me) then
  -- It was there until now.
  for _, name in ipairs(call('ZRANGE', M .. 'nodes', 0, -1)) do
    local node = M .. 'node:' .. name
    if call('HGET', node, 'session') == me then call('HSET', node, 'seen', clock) end
  end
  see()
  end_session(me)
end
local more = free_orphans()
-- Also when nothing is there to claim yet: somebody else has to mind the times at which something will be.
woke = true
flush()
return more and 1 or 0
