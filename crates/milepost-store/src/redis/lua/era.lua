-- Which era a node is in, asked until it is known. One that was seen since this node came goes on; if nobody of it can be
-- there any more, another begins; and while somebody may be, it is not known. What the node does with plans that do not say.
local by_default = ARGV[FIRST]
if is_lost() then return { 'lost' } end
reap()
if call('SISMEMBER', SETTLED_SESSIONS, me) == 1 then return { 'settled' } end

local started, seen, current = clock, {}, {}
for _, name in ipairs(call('ZRANGE', M .. 'nodes', 0, -1)) do
  local f = call('HMGET', M .. 'node:' .. name, 'session', 'started', 'seen')
  if f[1] == me then started = tonumber(f[2]) end
  if f[1] then
    seen[f[1]] = tonumber(f[3])
    current[f[1]] = true
  end
end
local goes_on = false
for _, session in ipairs(call('SMEMBERS', SETTLED_SESSIONS)) do
  if (seen[session] or 0) > started then goes_on = true end
  if not current[session] then call('SREM', SETTLED_SESSIONS, session) end
end
if not goes_on and has_begun() then
  call('SADD', ASKING, me)
  return { 'unknown' }
end

local function begin_era()
  for _, no in ipairs(call('ZRANGE', M .. 'open', 0, -1)) do
    local plan = plan_of(no)
    if plan and plan.says ~= 'auto' then
      local goes = plan.says == '' and by_default == 'auto'
      set_go(plan, goes and 1 or math.max(plan.go - 1, 0))
    end
  end
  local going = call('HGETALL', GOING)
  for index = 1, #going, 2 do
    local left = tonumber(going[index + 1]) - 1
    if left > 0 then call('HSET', GOING, going[index], left) else call('HDEL', GOING, going[index]) end
    replace(going[index])
  end
  call('DEL', SAID)
end

if goes_on then keep_to_this_era() else begin_era() end
call('SADD', SETTLED_SESSIONS, me)
call('SREM', ASKING, me)
flush()
return { 'settled' }
