-- A plan that another store has had: step ('begin', 'tasks', 'open' or 'drop'), its number while it is loaded, plan id,
-- the number of the first task of this step, how many tasks the plan has; six arguments that define the plan. Then, for
-- 'tasks', each task: what a new one has, created, status, version, when to wake, has a slot, pause requested, started,
-- ended, checkpoint, node, snapshot, lease; how many rows of its log and the rows; how much output and the output. For 'open':
-- status, version, who changed it, created, started, ended, now; and each lock: tenant, task, since, fence, time left.
local a = FIRST
local step, loaded, id, first_no, all = ARGV[a], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
local defined, at = a + 5, a + 11

local steps = {}

function steps.begin()
  if call('HEXISTS', M .. 'plans', id) == 1 then return { 'known' } end
  return other_load(id) or begin_load(id, all)
end

local function import_task(no, from)
  local task_id, f = ARGV[from], from + NEW
  if call('HEXISTS', M .. 'task-numbers', task_id) == 1 then
    local owner = call('HGET', M .. 'task:' .. call('HGET', M .. 'task-numbers', task_id), 'plan')
    return nil, { 'taken', task_id, call('HGET', M .. 'plan:' .. owner, 'id') or id }
  end
  insert_tasks(loaded, id, no, from, 1, ARGV[f])
  local key = M .. 'task:' .. no
  call('HSET', key, 'status', ARGV[f + 1], 'grip', ARGV[f + 2] .. ' ' .. ARGV[f + 11], 'wake', ARGV[f + 3], 'slot', ARGV[f + 4], 'paused',
    ARGV[f + 5])
  show_task(load_task(string.format('%d', no)), ARGV[f + 6], ARGV[f + 7], false)
  show_checkpoint(task_id, ARGV[f + 8], ARGV[f + 2], ARGV[f + 9])
  local rows = tonumber(ARGV[f + 12])
  for index = 1, rows do call('RPUSH', M .. 'events:' .. no, ARGV[f + 12 + index]) end
  if ARGV[f + 10] ~= '' then call('HSET', M .. 'snapshot:' .. no, 'rows', rows, 'body', ARGV[f + 10]) end
  f = f + 13 + rows
  local output = tonumber(ARGV[f])
  for index = 1, output do call('RPUSH', M .. 'output:' .. no, ARGV[f + index]) end
  return f + 1 + output
end

function steps.tasks()
  if not is_loading(id, loaded) then return { 'dropped' } end
  local no = first_no
  while at <= #ARGV do
    local next, clash = import_task(no, at)
    if clash then return clash end
    at, no = next, no + 1
  end
  go_on_loading(id, loaded)
  return { 'loaded' }
end

local function import_lock(from, now)
  local tenant, task_id, since, fence = ARGV[from], ARGV[from + 1], ARGV[from + 2], tonumber(ARGV[from + 3])
  local task = load_task(call('HGET', M .. 'task-numbers', task_id))
  if fence > tonumber(call('HGET', COUNTERS, 'fence') or 0) then
    call('HSET', COUNTERS, 'fence', string.format('%d', fence))
  end
  lock_tenant(task, since)
  call('HSET', M .. 'locks', tenant, task.no .. ' ' .. since .. ' ' .. string.format('%d', fence))
  call('PEXPIRE', P .. 'lock:tenant:' .. tenant, ARGV[from + 4])
end

function steps.open()
  if not is_loading(id, loaded) or call('ZCARD', M .. 'tasks:' .. loaded) ~= all then return { 'dropped' } end
  forgive()
  for lock = at + 7, #ARGV, 5 do
    if call('EXISTS', P .. 'lock:tenant:' .. ARGV[lock]) == 1 then return { 'busy', ARGV[lock] } end
  end
  end_load(id)
  local created, now = ARGV[at + 3], ARGV[at + 6]
  local plan = new_plan(loaded, id, tonumber(ARGV[at]), created, defined, 0)
  -- A person has moved it, and says when it goes on.
  plan.go = plan.says == 'manual' and 0 or 1
  plan.version, plan.by, plan.started, plan.ended = tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 4], ARGV[at + 5]
  open_plan(plan, created, defined)
  log_plan(plan, plan.by, now)
  log_created(first_no, all)
  for _, no in ipairs(call('ZRANGE', M .. 'tasks:' .. loaded, 0, -1)) do
    local task = load_task(no)
    count(plan, task.status, 1)
    if task.slot then plan.slots = plan.slots + 1 end
    for row = 1, call('LLEN', M .. 'events:' .. no) do log('t ' .. no .. ' ' .. row - 1) end
    if task.status ~= PENDING then replace(no) end
  end
  for lock = at + 7, #ARGV, 5 do import_lock(lock, now) end
  flush()
  return { 'ok' }
end

function steps.drop() return drop_load(id, loaded) end

return steps[step]()
