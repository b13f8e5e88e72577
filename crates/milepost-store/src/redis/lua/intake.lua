-- Taking in plans and their tasks: the steps that submitting, updating and moving have in common.

-- What clients call their submissions, and what they were answered, for a day of their own time.
local function kept_answer(request, digest, now)
  if request == '' then return nil end
  local kept = call('HMGET', M .. 'request:' .. request, 'digest', 'at', 'answer')
  if not kept[1] or tonumber(kept[2]) <= tonumber(now) - DAY then return nil end
  if kept[1] ~= digest then return { 'reused' } end
  return { 'replayed', kept[3] }
end

local function keep_answer(request, digest, now, answer)
  if request == '' then return end
  local key = M .. 'request:' .. request
  for index, value in ipairs(answer) do answer[index] = tostring(value) end
  call('HSET', key, 'digest', digest, 'at', now, 'answer', cjson.encode(answer))
  call('PEXPIRE', key, DAY + 3600000)
end

-- A person who asks for a tenant is answered with its newest task.
local function index_tenant(tenant)
  local key = P .. 'index:tenant:' .. tenant
  local newest_task = call('ZREVRANGE', M .. 'tenant:' .. tenant, 0, 0)[1]
  if newest_task then
    call('SET', key, call('HGET', M .. 'task:' .. newest_task, 'id'), 'PX', WEEK)
  else
    call('DEL', key)
  end
end

-- A task id that some plan in the store has already.
local function taken_id(first, each, tasks, plan_no, plan_id)
  local seen = {}
  for index = 0, tasks - 1 do
    local id = ARGV[first + index * each]
    local no = call('HGET', M .. 'task-numbers', id)
    local owner = no and call('HGET', M .. 'task:' .. no, 'plan')
    if owner and owner ~= plan_no then
      return { 'taken', id, call('HGET', M .. 'plan:' .. owner, 'id') or plan_id }
    end
    if seen[id] then return { 'taken', id, plan_id } end
    seen[id] = true
  end
  return nil
end

-- Of tasks that are new, the tenants that tasks of other plans have.
local function busy_tenants(first, each, tasks, plan_id)
  local busy, seen = { 'busy' }, {}
  for index = 0, tasks - 1 do
    local tenant = ARGV[first + index * each + 1]
    if tenant ~= '' and not seen[tenant] then
      seen[tenant] = true
      local holder = call('GET', P .. 'lock:tenant:' .. tenant)
      if holder and string.match(holder, '^([^:]*):') ~= plan_id then busy[#busy + 1] = tenant end
    end
  end
  return #busy > 1 and busy or nil
end

-- So many arguments go into one call.
local function in_parts(list, write)
  for from = 1, #list, 1000 do write(unpack(list, from, math.min(from + 999, #list))) end
end

-- New tasks, PENDING; for each: id, tenant, rank, body, its checksum, what lists show, whether it awaits its message.
local NEW = 7
local function insert_tasks(plan_no, plan_id, first_no, at, tasks, now)
  local created = iso(now)
  local numbers, members, ready = {}, {}, {}
  for index = 0, tasks - 1 do
    local a = at + index * NEW
    local no, id, tenant, rank = string.format('%d', first_no + index), ARGV[a], ARGV[a + 1], ARGV[a + 2]
    local awaits = ARGV[a + 6] == '1'
    call('HSET', M .. 'task:' .. no, 'id', id, 'plan', plan_no, 'tenant', tenant, 'rank', rank, 'created', now, 'body',
      ARGV[a + 3], 'crc', ARGV[a + 4], 'image', ARGV[a + 5], 'status', '0', 'grip', '1 0', 'session', '', 'wake', '', 'place',
      awaits and 'awaits' or 'ready', 'slot', '0', 'asked', '0', 'paused', '0')
    local last = #numbers
    numbers[last + 1], numbers[last + 2] = id, no
    members[last + 1], members[last + 2] = no, no
    if not awaits then ready[#ready + 1], ready[#ready + 2] = rank, pad(no) end
    local key = P .. 'task:' .. id
    try('HSET', key, 'taskId', id, 'tenantId', tenant, 'planId', plan_id, 'status', 'PENDING', 'pauseRequested', 'false',
      'createdAt', created)
    try('PEXPIRE', key, WEEK)
    if tenant ~= '' then
      call('ZADD', M .. 'tenant:' .. tenant, no, no)
      call('SET', P .. 'index:tenant:' .. tenant, id, 'PX', WEEK)
    end
  end
  in_parts(numbers, function(...) call('HSET', M .. 'task-numbers', ...) end)
  in_parts(members, function(...) call('ZADD', M .. 'tasks:' .. plan_no, ...) end)
  in_parts(ready, function(...) call('ZADD', M .. 'ready:' .. plan_no, ...) end)
end

local function log_created(first_no, tasks)
  for index = 0, tasks - 1 do log(string.format('c %d', first_no + index)) end
end

local function numbers(tasks)
  local last = call('HINCRBY', COUNTERS, 'task', tasks)
  return last - tasks + 1
end

-- Everything of a task that is not its plan's.
local function delete_task(no, id, tenant, plan_no)
  call('DEL', M .. 'task:' .. no, M .. 'events:' .. no, M .. 'snapshot:' .. no, M .. 'output:' .. no,
    P .. 'task:' .. id, P .. 'ckpt:' .. id, P .. 'ckpt:meta:' .. id)
  call('HDEL', M .. 'task-numbers', id)
  call('ZREM', M .. 'tasks:' .. plan_no, no)
  call('ZREM', M .. 'ready:' .. plan_no, pad(no))
  call('ZREM', M .. 'letgo:' .. plan_no, pad(no))
  call('ZREM', M .. 'letundo:' .. plan_no, pad(no))
  call('HDEL', GOING, no)
  if tenant ~= '' then
    call('ZREM', M .. 'tenant:' .. tenant, no)
    if call('GET', P .. 'index:tenant:' .. tenant) == id then index_tenant(tenant) end
  end
end

-- The plan's own record, from arguments: digest, definition, most at once, recovery, kind, ids of its tasks.
local function define_plan(no, id, at)
  call('HSET', M .. 'plan:' .. no, 'id', id, 'digest', ARGV[at], 'definition', ARGV[at + 1], 'kind', ARGV[at + 4])
  try('HSET', P .. 'plan:' .. id, 'taskIds', ARGV[at + 5])
end

local function new_plan(no, id, status, created, at, tasks)
  return { no = no, id = id, status = status, version = 1, max = tonumber(ARGV[at + 2]), slots = 0, kind = ARGV[at + 4],
    says = ARGV[at + 3], go = status == PLAN_RUNNING and go_now(ARGV[at + 3]) or 0, started = status == PLAN_RUNNING and created or '', ended = '', by = '',
    counts = { [0] = tasks, 0, 0, 0, 0, 0, 0, 0, 0 } }
end

local function plan_number() return string.format('%d', call('HINCRBY', COUNTERS, 'plan', 1)) end

local function open_plan(plan, created, at)
  plans[plan.no] = plan
  if plan.go > 1 then call('SADD', SAID, 'p' .. plan.no) end
  define_plan(plan.no, plan.id, at)
  call('HSET', M .. 'plan:' .. plan.no, 'created', created)
  try('HSET', P .. 'plan:' .. plan.id, 'createdAt', iso(created))
  call('HSET', M .. 'plans', plan.id, plan.no)
  call('ZADD', M .. 'plan-numbers', plan.no, plan.no)
  plan.changed, plan.look, plan.show = true, true, true
end

-- The same plan again: it is started if it only waited for that, and otherwise left as it is.
local function carry_on(plan, start, now)
  if not start then return end
  local was_held = set_going(plan)
  if plan.status < PLAN_RUNNING and set_plan_status(plan, PLAN_RUNNING, '', now) then
    log_plan(plan, '', now)
  elseif was_held then
    count_change(plan, '')
    log_plan(plan, '', now)
  end
end

-- --- large plans, which come in steps ---

local LOADING = M .. 'loading'
-- A load that nobody has gone on with for this long was given up.
local PATIENCE = 30000

local function other_load(id)
  local load = call('HGET', LOADING, id)
  return load and { 'loading', load, clock, PATIENCE } or nil
end

local function go_on_loading(id, no) call('HSET', LOADING, id, no .. ' ' .. clock) end

local function begin_load(id, tasks)
  local no = plan_number()
  go_on_loading(id, no)
  return { 'begun', no, numbers(tasks) }
end

-- Somebody else may have taken the load for given up.
local function is_loading(id, no) return string.match(call('HGET', LOADING, id) or '', '^%d+') == no end

local function end_load(id) call('HDEL', LOADING, id) end

local function drop_load(id, no)
  if not is_loading(id, no) then return { 'dropped' } end
  local some = call('ZRANGE', M .. 'tasks:' .. no, 0, 499)
  for _, task in ipairs(some) do
    local f = call('HMGET', M .. 'task:' .. task, 'id', 'tenant')
    delete_task(task, f[1], f[2], no)
  end
  if #some == 500 then return { 'more' } end
  end_load(id)
  return { 'dropped' }
end
