-- A node renews its lease, and with it, in portions, whatever any node has to keep alive.
-- name, length of a lease, how long nobody may be heard of, tasks in hand, capacity, boot id.
local name, lease = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local node = M .. 'node:' .. name
if is_lost() then
  local now = call('HMGET', node, 'session', 'pid', 'boot')
  -- One that this very process began, and did not hear of, is nobody else's.
  local other = now[1] and now[1] ~= me and now[3] ~= ARGV[FIRST + 5]
  if other and is_member(now[1]) then return { 'owned', now[2] } end
  return { 'lost' }
end
hear(lease, ARGV[FIRST + 2])
call('ZADD', M .. 'sessions', clock + lease, me)
call('HSET', node, 'seen', clock, 'hand', ARGV[FIRST + 3], 'capacity', ARGV[FIRST + 4])
call('ZADD', M .. 'nodes', clock, name)
see()
reap()
local more = free_orphans()

-- Tenant locks: looked at after a third of their time, and again when they would open.
local function may_keep(task)
  if task.status == PAUSED then return true end
  if not is_active(task.status) then return task.status == PENDING end
  if task.lease ~= '0' and is_member(task.session) then return true end
  return plan_of(task.plan).says ~= 'manual' or task.wake ~= '' or task.asked
end

local function look_at_lock(tenant)
  local key = P .. 'lock:tenant:' .. tenant
  local holder, kept = call('GET', key), call('HGET', M .. 'locks', tenant)
  local task = kept and load_task(string.match(kept, '^%d+'))
  if not holder and not (task and may_keep(task)) then
    forget_lock(tenant)
    offer_line(tenant)
  elseif task and (not holder or holder == owner_of(task)) then
    if may_keep(task) then
      -- Also one that has opened while no node was there to renew it, and that nobody has taken since.
      call('SET', key, owner_of(task), 'PX', LOCK_TTL)
      call('ZADD', M .. 'renew', clock + math.floor(LOCK_TTL / 3), tenant)
    else
      call('ZADD', M .. 'renew', call('PEXPIRETIME', key) + 1, tenant)
    end
  elseif call('EXISTS', M .. 'line:' .. tenant) == 1 then
    -- Another program's lock, which it may open at any time.
    call('ZADD', M .. 'renew', clock + 5000, tenant)
  else
    forget_lock(tenant)
  end
end

local tenants = call('ZRANGEBYSCORE', M .. 'renew', '-inf', clock, 'LIMIT', 0, 200)
for _, tenant in ipairs(tenants) do look_at_lock(tenant) end
more = more or #tenants == 200

-- Keys with the outside's TTLs live on while their plan is open: once a day, some tasks at a time.
local function refresh_task(no, plan)
  local f = call('HMGET', M .. 'task:' .. no, 'id', 'tenant')
  if not f[1] then return end
  for _, key in ipairs({ 'task:', 'ckpt:', 'ckpt:meta:' }) do call('PEXPIRE', P .. key .. f[1], WEEK) end
  if f[2] ~= '' then call('PEXPIRE', P .. 'index:tenant:' .. f[2], WEEK) end
end

local no = call('ZRANGEBYSCORE', M .. 'refresh', '-inf', clock, 'LIMIT', 0, 1)[1]
local plan = no and plan_of(no)
if no and not plan then
  call('ZREM', M .. 'refresh', no)
elseif plan then
  local after = call('HGET', M .. 'plan:' .. no, 'refreshed') or '0'
  local tasks = call('ZRANGEBYSCORE', M .. 'tasks:' .. no, '(' .. after, '+inf', 'LIMIT', 0, 250)
  for _, task in ipairs(tasks) do refresh_task(task) end
  call('PEXPIRE', P .. 'plan:' .. plan.id, WEEK)
  if #tasks == 250 then
    call('HSET', M .. 'plan:' .. no, 'refreshed', tasks[250])
  else
    call('HDEL', M .. 'plan:' .. no, 'refreshed')
    call('ZADD', M .. 'refresh', clock + DAY, no)
  end
end

-- A large plan whose loading was given up is taken back.
local load = call('HGETALL', LOADING)
if load[2] and clock - tonumber(string.match(load[2], '%d+$')) > PATIENCE then
  drop_load(load[1], string.match(load[2], '^%d+'))
end

-- Nodes that were not seen for a day are forgotten.
for _, old in ipairs(call('ZRANGEBYSCORE', M .. 'nodes', '-inf', clock - DAY, 'LIMIT', 0, 20)) do
  call('ZREM', M .. 'nodes', old)
  call('SREM', SETTLED_SESSIONS, call('HGET', M .. 'node:' .. old, 'session') or '')
  call('DEL', M .. 'node:' .. old)
end
local wait = flush() and 0 or ''
for _, session in ipairs(call('ZRANGE', M .. 'sessions', 0, 1)) do
  if session ~= me and wait == '' then
    wait = math.max(tonumber(call('ZSCORE', M .. 'sessions', session)) - clock, 0) + 1
    break
  end
end
return { 'ok', wait, more and 1 or 0, string.format('%.0f', clock) }
