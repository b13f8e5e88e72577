-- The steps that all changes of tasks are made of: where a task stands, who has its tenant, and what it has become.

-- `grip` is what a commit must know to be taken: the version, and the lease, 0 when nobody has one.
local function task_from(no, f)
  if not f[1] then return nil end
  local version, lease = string.match(f[6], '^(%d+) (%d+)$')
  return { no = no, id = f[1], plan = f[2], tenant = f[3], rank = tonumber(f[4]), status = tonumber(f[5]),
    version = version, lease = lease, session = f[7], wake = f[8], place = f[9], slot = f[10] == '1', asked = f[11] == '1',
    paused = f[12], awaits = f[9] == 'awaits' }
end

local function load_task(no)
  return task_from(no, call('HMGET', M .. 'task:' .. no, 'id', 'plan', 'tenant', 'rank', 'status', 'grip', 'session', 'wake',
    'place', 'slot', 'asked', 'paused'))
end

-- --- tenants ---

local function owner_of(task) return plan_of(task.plan).id .. ':' .. task.id end

-- Whoever else has the task's tenant; another program's lock counts as much as one of ours.
local function blocker(task)
  if task.tenant == '' then return nil end
  local holder = call('GET', P .. 'lock:tenant:' .. task.tenant)
  if holder and holder ~= owner_of(task) then return holder end
  return nil
end

-- By plan; in it, what is to be undone by time, and then what is pending by rank and number.
local function line_member(task)
  local turn = task.asked and tonumber(task.wake) or 1e15 + task.rank + 2147483648
  return string.format('%016d%016.0f%016d', task.plan, turn, task.no)
end

-- What is to run or to be undone and was set going by itself is found without its plan, and without those that were not.
local LET_GO = { ready = 'letgo:', undo = 'letundo:' }

local function queue(task, plan, place)
  local turn, member = place == 'undo' and task.wake or task.rank, pad(task.no)
  call('ZADD', M .. place .. ':' .. plan.no, turn, member)
  if plan.says ~= 'auto' and own_go(task.no) > 0 and call('ZADD', M .. LET_GO[place] .. plan.no, turn, member) == 1 then
    -- Its plan may be where claims look already, for others that cannot be taken.
    if not plan_goes(plan) and plan.look ~= 'quietly' then woke = true end
  end
end

local function unqueue(task, plan)
  call('ZREM', M .. task.place .. ':' .. plan.no, pad(task.no))
  call('ZREM', M .. LET_GO[task.place] .. plan.no, pad(task.no))
end

local function next_in(line, from) return call('ZRANGEBYLEX', line, from, '+', 'LIMIT', 0, 1)[1] end
local function after_plan(no) return '[' .. pad(no + 1) end

local function leave_line(tenant, member)
  call('ZREM', M .. 'line:' .. tenant, member)
  call('ZREM', M .. 'letline:' .. tenant, member)
end

local function step_out(tenant, member)
  leave_line(tenant, member)
  local no = unpad(string.sub(member, 33))
  local task = load_task(no)
  local plan = plan_of(task.plan)
  local place = task.asked and 'undo' or 'ready'
  plan.look = true
  queue(task, plan, place)
  call('HSET', M .. 'task:' .. no, 'place', place)
  return task, plan
end

-- What was set going by itself waits for none of its plan that was not. The first of each plan, as below.
local function offer_let_go(tenant)
  local line, from = M .. 'letline:' .. tenant, '-'
  while true do
    local member = next_in(line, from)
    if not member then return end
    local plan = plan_of(unpad(string.sub(member, 1, 16)))
    if not plan_goes(plan) then step_out(tenant, member) end
    from = after_plan(plan.no)
  end
end

-- Lets the first in line of each plan try again: a plan that is paused must not keep another plan's task waiting. After
-- a few that can run nobody else needs to be woken now; a later look takes care of those if none of the few did run.
local FEW = 8
local function offer_line(tenant)
  offer_let_go(tenant)
  local line = M .. 'line:' .. tenant
  local from, runnable = '-', 0
  while runnable < FEW do
    local first = next_in(line, from)
    if not first then return end
    local task, plan = step_out(tenant, first)
    local may_start = plan_goes(plan) or own_go(task.no) > 0
    if may_start and plan.slots < plan.max and (task.asked or plan.status == PLAN_RUNNING) then runnable = runnable + 1 end
    from = after_plan(plan.no)
  end
  call('ZADD', M .. 'renew', 'NX', clock + 5000, tenant)
end

local function line_up(task)
  local plan = plan_of(task.plan)
  unqueue(task, plan)
  local member = line_member(task)
  call('ZADD', M .. 'line:' .. task.tenant, 0, member)
  if plan.says ~= 'auto' and own_go(task.no) > 0 then call('ZADD', M .. 'letline:' .. task.tenant, 0, member) end
  call('HSET', M .. 'task:' .. task.no, 'place', 'line')
  call('ZADD', M .. 'renew', 'NX', clock + 5000, task.tenant)
  plan.look = true
end

-- Re-entrant for the same task, each time under a larger fence.
local function lock_tenant(task, at)
  if task.tenant == '' then return end
  local key, owner, since = P .. 'lock:tenant:' .. task.tenant, owner_of(task), at
  if call('GET', key) == owner then
    local kept = call('HGET', M .. 'locks', task.tenant)
    if kept then since = string.match(kept, '^%d+ (%-?%d+) ') end
  end
  call('SET', key, owner, 'PX', LOCK_TTL)
  local fence = call('HINCRBY', COUNTERS, 'fence', 1)
  call('HSET', M .. 'locks', task.tenant, task.no .. ' ' .. since .. ' ' .. fence)
  call('ZADD', M .. 'renew', clock + math.floor(LOCK_TTL / 3), task.tenant)
end

local function forget_lock(tenant)
  call('HDEL', M .. 'locks', tenant)
  call('ZREM', M .. 'renew', tenant)
end

-- Only its owner opens a lock.
local function unlock_tenant(task)
  if task.tenant == '' then return end
  local key = P .. 'lock:tenant:' .. task.tenant
  if call('GET', key) == owner_of(task) then
    call('DEL', key)
    forget_lock(task.tenant)
  end
  if call('EXISTS', key) == 0 then offer_line(task.tenant) end
end

-- --- places ---

-- Where what was interrupted waits: for any node, for one whose own setting says so, or for a person.
local RECOVERY = { auto = 'recovery', [''] = 'silent', manual = 'manual' }
local FOUND_BY_KIND = { due = true, quiet = true, recovery = true, silent = true }
-- Asleep, and who finds it then: any node, one that goes on with plans that do not say, or none without a person's word.
local SLEEPS = { due = true, quiet = true, held = true }

local function place_of(task, plan)
  if task.status == PENDING then return task.awaits and 'awaits' or 'ready' end
  if not is_active(task.status) then return '' end
  if task.lease ~= '0' and is_member(task.session) then return '' end
  if task.asked then return 'undo' end
  -- An undo was asked for by somebody, or belongs to a failure that has happened: no plan holds it up.
  if task.status == RUNNING and plan.status ~= PLAN_RUNNING then return 'idle' end
  if task.lease ~= '0' or task.wake == '' then return RECOVERY[plan.says] end
  -- What nobody has set going waits for that as what was interrupted does.
  if plan_goes(plan) or own_go(task.no) > 0 then return 'due' end
  return plan.says == '' and 'quiet' or 'held'
end

-- Nobody looks for what waits for its message, or for a person.
local function is_in_no_list(place) return place == '' or place == 'awaits' or place == 'aside' end

local function unplace(task, plan)
  local place, member = task.place, pad(task.no)
  if place == 'ready' or place == 'undo' then
    unqueue(task, plan)
    plan.look = true
  elseif place == 'line' then
    leave_line(task.tenant, line_member(task))
  elseif not is_in_no_list(place) then
    call('SREM', M .. 'idle:' .. plan.no, task.no)
    if FOUND_BY_KIND[place] then call('ZREM', M .. place .. ':' .. plan.kind, member) end
  end
  task.place = ''
end

-- Puts a task where its state belongs; the caller writes its place. `quietly`, when no other node is to be called for it.
local function put(task, plan, quietly)
  local place, member = place_of(task, plan), pad(task.no)
  task.place = place
  if place == 'ready' or place == 'undo' then
    plan.look = quietly and (plan.look or 'quietly') or true
    queue(task, plan, place)
  elseif not is_in_no_list(place) then
    call('SADD', M .. 'idle:' .. plan.no, task.no)
    if place == 'due' or place == 'quiet' then
      call('ZADD', M .. place .. ':' .. plan.kind, task.wake, member)
      -- Whoever had it and puts it to sleep knows until when. Of one that somebody else wakes, perhaps by another clock,
      -- those who can run it do not.
      if not task.was_ours or tonumber(task.wake) <= clock then woke = true end
    elseif FOUND_BY_KIND[place] and call('ZADD', M .. place .. ':' .. plan.kind, task.no, member) == 1 then
      woke = true
    end
  end
end

local function replace(no)
  local task = load_task(no)
  if not task then return end
  local plan = plan_of(task.plan)
  unplace(task, plan)
  put(task, plan)
  call('HSET', M .. 'task:' .. no, 'place', task.place)
end

-- --- plans and their tasks ---

-- Which eras the plan is set going for; what its sleeping tasks may do depends on it.
local function set_go(plan, go)
  if go > 1 then call('SADD', SAID, 'p' .. plan.no) end
  if plan.go == go then return end
  if plan.go == 0 then
    call('ZREM', M .. 'quiet-plans:' .. plan.kind, plan.no)
    call('ZREM', M .. 'quiet-undo-plans:' .. plan.kind, plan.no)
  end
  plan.go, plan.changed, plan.look = go, true, true
  for _, no in ipairs(call('SMEMBERS', M .. 'idle:' .. plan.no)) do replace(no) end
end

-- A person wants the plan to run; answers whether that is news.
local function set_going(plan)
  local was_held = waits_for_person(plan)
  set_go(plan, go_now(plan.says))
  return was_held
end

-- A person wants this task to run. `asked`: what its plan becomes by the same word. What the plan is set going for already
-- need not be kept with the task.
local function let_go(task, asked)
  local plan = plan_of(task.plan)
  local word = go_now(plan.says)
  if asked == PLAN_RUNNING and plan.status ~= PLAN_RUNNING then
    set_go(plan, word)
  elseif plan.says ~= 'auto' and plan_go(plan) < word then
    call('HSET', GOING, task.no, word)
    if word > 1 then call('SADD', SAID, 't' .. task.no) end
  end
end

-- Its version grows though its status is the same.
local function count_change(plan, by)
  plan.version, plan.changed, plan.show = plan.version + 1, true, true
  if by ~= '' then plan.by = by end
end

local function set_plan_status(plan, status, by, at)
  if plan.status == status then return false end
  plan.status, plan.version, plan.by = status, plan.version + 1, by
  if status == PLAN_RUNNING then
    if plan.started == '' then plan.started = at end
    call('ZREM', M .. 'quiet-undo-plans:' .. plan.kind, plan.no)
  end
  plan.ended = status >= PLAN_COMPLETED and open_tasks(plan) == 0 and at or ''
  plan.changed, plan.look, plan.show = true, true, true
  -- What its interrupted and sleeping tasks may do depends on it.
  for _, no in ipairs(call('SMEMBERS', M .. 'idle:' .. plan.no)) do replace(no) end
  return true
end

-- Ends the plan if nothing is left to run.
local function settle(plan, at)
  local changed = false
  if open_tasks(plan) == 0 then
    local all = 0
    for status = 0, 8 do all = all + plan.counts[status] end
    local row = plan.counts[COMPLETED] == all and 0 or 7
    local status = tonumber(string.sub(SETTLED, row + plan.status + 1, row + plan.status + 1))
    changed = set_plan_status(plan, status, '', at)
    -- A plan is CANCELLED from the word on, and ends with its last task.
    if plan.status >= PLAN_COMPLETED and plan.ended == '' then
      plan.ended, plan.version, plan.changed, plan.show = at, plan.version + 1, true, true
      changed = true
    end
  end
  return changed
end

-- --- what a task has become ---

-- The task as redis-cli shows it.
local function show_task(task, started, ended, was_ended)
  show(P .. 'task:' .. task.id, started, ended, was_ended, 'status', STATUSES[task.status], 'pauseRequested',
    task.paused == '1' and 'true' or 'false')
end

-- Body and meta are written together and expire together.
local function show_checkpoint(id, checkpoint, version, node)
  if checkpoint == '' then return end
  local body, meta = P .. 'ckpt:' .. id, P .. 'ckpt:meta:' .. id
  if checkpoint == 'none' then
    try('DEL', body, meta)
  else
    try('SET', body, checkpoint, 'PX', WEEK)
    try('HSET', meta, 'version', version, 'instanceId', node)
    try('PEXPIRE', meta, WEEK)
  end
end

local function append(no, row, snapshot)
  if row == '' then return newest() end
  local rows = call('RPUSH', M .. 'events:' .. no, row)
  if snapshot ~= '' then call('HSET', M .. 'snapshot:' .. no, 'rows', rows, 'body', snapshot) end
  return log('t ' .. no .. ' ' .. rows - 1)
end

local function add_output(no, at, pieces)
  for index = 1, pieces do call('RPUSH', M .. 'output:' .. no, ARGV[at + index]) end
end

local function release_slot(task, plan)
  if not task.slot then return end
  task.slot = false
  plan.slots = plan.slots - 1
  plan.changed, plan.look = true, true
end

-- Slot, lock and place follow from what a task has become.
local function store(task, new, hold)
  local key, before, paused_before = M .. 'task:' .. task.no, task.status, task.paused
  local at = append(task.no, new.row, new.snapshot)
  show_checkpoint(task.id, new.checkpoint, new.version, new.node)
  add_output(task.no, new.output, new.pieces)
  if new.clear then call('HDEL', key, 'progress') end
  local plan = plan_of(task.plan)
  unplace(task, plan)
  task.was_ours = task.lease ~= '0' and task.session == me
  if task.lease ~= hold.lease then
    if task.lease ~= '0' then call('SREM', M .. 'held:' .. task.session, task.no) end
    if hold.lease ~= '0' then call('SADD', M .. 'held:' .. hold.session, task.no) end
  end
  task.status, task.lease, task.session, task.wake, task.asked = new.status, hold.lease, hold.session, hold.wake, hold.asked
  task.version, task.paused = new.version, new.paused
  -- The node that took its message in runs it by preference; others find it when they look next. A visitor runs nothing.
  local has_its_message = me ~= '' and task.awaits and not new.awaits
  task.awaits = new.awaits
  if new.status ~= before then
    count(plan, before, -1)
    count(plan, new.status, 1)
  end
  if not is_active(new.status) then release_slot(task, plan) end
  put(task, plan, has_its_message)
  call('HSET', key, 'grip', new.version .. ' ' .. task.lease, 'image', new.image, 'paused', new.paused, 'status',
    new.status, 'session', task.session, 'wake', task.wake, 'place', task.place, 'slot', task.slot and '1' or '0', 'asked',
    task.asked and '1' or '0')
  if new.status ~= before or new.paused ~= paused_before then
    show_task(task, new.started, new.ended, is_ended(before))
  end
  if is_ended(new.status) then
    unlock_tenant(task)
  elseif before == PENDING and new.status ~= before and task.tenant ~= '' and hold.lease == '0' and
      call('EXISTS', P .. 'lock:tenant:' .. task.tenant) == 0 then
    -- It may have been first in line for a tenant that nobody has.
    offer_line(task.tenant)
  end
  return at
end

-- The arguments of one change, from `at` on, with what it means for the books, in the order in which Rust writes them; and where the next begins.
local function read_change(at)
  local a = ARGV
  local new = { status = tonumber(a[at]), version = a[at + 1], at = a[at + 2], row = a[at + 3], image = a[at + 4],
    clear = a[at + 5] == '1', checkpoint = a[at + 6], node = a[at + 7], paused = a[at + 8], started = a[at + 9],
    ended = a[at + 10], awaits = a[at + 11] == '1', snapshot = a[at + 12], output = at + 13,
    pieces = tonumber(a[at + 13]) }
  new.books = at + 14 + new.pieces
  return new, new.books + 1 + tonumber(a[new.books])
end
