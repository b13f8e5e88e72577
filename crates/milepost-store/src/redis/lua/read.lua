-- Questions. The first argument says which one; each is answered from one moment.

local function blocked_by(task)
  if task.status == PENDING or (is_active(task.status) and task.lease == '0') then return blocker(task) end
  return nil
end

local function set_aside(task) return task.place == 'aside' and call('HGET', M .. 'task:' .. task.no, 'reason') or '' end

local function is_orphaned(task) return is_active(task.status) and task.lease ~= '0' and not is_live(task.session) end

local function shown_plan(id)
  local no = call('HGET', M .. 'plans', id)
  return no and plan_of(no)
end

-- Nothing can see a task whose plan is still being loaded.
local function shown_task(id)
  local no = call('HGET', M .. 'task-numbers', id)
  local task = no and load_task(no)
  return task and plan_of(task.plan) and task
end

local questions = {}

function questions.plan(id)
  local plan = shown_plan(id)
  return plan and plan_row(plan) or {}
end

function questions.definition(id, after)
  local plan = shown_plan(id)
  if not plan then return {} end
  local tasks = {}
  local numbers = call('ZRANGEBYSCORE', M .. 'tasks:' .. plan.no, '(' .. after, '+inf', 'LIMIT', 0, 1000)
  for index, no in ipairs(numbers) do
    local f = call('HMGET', M .. 'task:' .. no, 'id', 'tenant', 'rank', 'created', 'body', 'crc', 'grip')
    tasks[index] = { no, f[1], f[2], f[3], f[4], f[5], f[6], string.match(f[7], '^%d+') }
  end
  local f = call('HMGET', M .. 'plan:' .. plan.no, 'definition', 'digest')
  return { plan.no, f[1], f[2], plan.version, tasks }
end

function questions.shared(no)
  local f = call('HMGET', M .. 'plan:' .. no, 'definition', 'digest')
  return { f[1] or '', f[2] or '' }
end

function questions.plans(open_only, before, limit)
  local from = before == '' and '+inf' or '(' .. before
  local set = open_only == '1' and 'open' or 'plan-numbers'
  local rows = {}
  for index, no in ipairs(call('ZREVRANGEBYSCORE', M .. set, from, '-inf', 'LIMIT', 0, limit)) do
    rows[index] = plan_row(plan_of(no))
  end
  return rows
end

function questions.task(id, from_start)
  local no = call('HGET', M .. 'task-numbers', id)
  local task = no and load_whole(no)
  if not task or not plan_of(task.plan) then return {} end
  local plan = plan_of(task.plan)
  return { describe(task, from_start == '1'), is_orphaned(task) and 1 or 0, blocked_by(task) or '', set_aside(task), plan.status,
    plan_go(plan), own_go(no), plan.says == 'manual' and not has_begun() and 0 or 1 }
end

function questions.described(no)
  local task = load_whole(no)
  return task and describe(task, true) or {}
end

-- A search for some states may pass over any number of tasks before it finds a few, so it goes on from where it was.
function questions.tasks(of, name, after, limit, wanted)
  local numbers
  if of == 'plan' then
    local plan = shown_plan(name)
    if not plan then return {} end
    numbers = call('ZRANGEBYSCORE', M .. 'tasks:' .. plan.no, '(' .. after, '+inf', 'LIMIT', 0, 1000)
  else
    local from = after == '' and '+inf' or '(' .. after
    numbers = call('ZREVRANGEBYSCORE', M .. 'tenant:' .. name, from, '-inf', 'LIMIT', 0, 1000)
  end
  local rows, last = {}, after
  for _, no in ipairs(numbers) do
    if #rows >= tonumber(limit) then return { last, 1, rows } end
    local task = load_task(no)
    local plan = plan_of(task.plan)
    last = no
    if plan and (wanted == '' or string.find(wanted, task.status, 1, true)) then
      local f = call('HMGET', M .. 'task:' .. no, 'created', 'image', 'progress')
      rows[#rows + 1] = { no, task.id, plan.id, task.tenant, task.status, task.version, f[1], f[2], f[3] or '',
        is_orphaned(task) and 1 or 0, blocked_by(task) or '', set_aside(task) }
    end
  end
  return { last, #numbers == 1000 and 1 or 0, rows }
end

-- From the row on that has the first event wanted; rows are read from the end, because people look at what is new.
function questions.events(id, after)
  local task = shown_task(id)
  if not task then return {} end
  local key = M .. 'events:' .. task.no
  local low, high = 0, call('LLEN', key)
  while low + 1 < high do
    local middle = math.floor((low + high) / 2)
    -- One without a number is damaged: what is wanted may be in it.
    local sequence = tonumber(string.match(call('LINDEX', key, middle), '^%d+'))
    if sequence and sequence <= tonumber(after) + 1 then low = middle else high = middle end
  end
  local created = call('HGET', M .. 'task:' .. task.no, 'created')
  return { created, call('LRANGE', key, low, low + 999), call('LLEN', key) > low + 1000 and 1 or 0, task.version }
end

function questions.output(id)
  local task = shown_task(id)
  if not task then return {} end
  return { call('LRANGE', M .. 'output:' .. task.no, 0, -1) }
end

-- Some at a time, from a place that the last answer named.
function questions.locks(from)
  local page = call('HSCAN', M .. 'locks', from, 'COUNT', 500)
  local locks, kept = {}, page[2]
  for index = 1, #kept, 2 do
    local tenant, no, since, fence = kept[index], string.match(kept[index + 1], '^(%d+) (%-?%d+) (%d+)$')
    local key = P .. 'lock:tenant:' .. tenant
    local task = load_task(no)
    -- One that has opened by itself is forgotten at a later beat.
    if task and call('GET', key) == owner_of(task) then
      locks[#locks + 1] = { tenant, plan_of(task.plan).id, task.id, since, fence, call('PEXPIRETIME', key) }
    end
  end
  return { page[1], locks }
end

local MOST_BYTES = 4194304
-- Each with its position, its plan, what it is, and for a task which, whose, and what happened to it.
function questions.changes(after, only, limit)
  local wanted = only ~= '' and shown_plan(only)
  if only ~= '' and not wanted then return {} end
  local names = {}
  local function named(no)
    if names[no] == nil then
      local f = call('HMGET', M .. 'task:' .. no, 'id', 'tenant', 'plan', 'created')
      names[no] = f[1] and { id = f[1], tenant = f[2], plan = plan_of(f[3]), created = f[4] } or false
    end
    return names[no]
  end
  local function read(entry)
    local kind, no, rest = string.match(entry, '^(%a) (%d+) ?(.*)$')
    if kind == 'p' then return kind, plan_of(no), nil, rest end
    local task = named(no)
    -- One that was removed is out of the log, and so is what happened to it.
    if not task or (wanted and (not task.plan or task.plan.no ~= wanted.no)) then return kind, nil end
    return kind, task.plan, task, kind == 'c' and task.created or call('LINDEX', M .. 'events:' .. no, rest) or ''
  end
  after, limit = tonumber(after), tonumber(limit)
  local some = call('LRANGE', LOG, after, after + 4095)
  local found, upto, bytes = {}, after, 0
  for index, entry in ipairs(some) do
    if #found >= limit or bytes >= MOST_BYTES then return { upto, 1, found } end
    upto = after + index
    local kind, plan, task, body = read(entry)
    if plan and (not wanted or wanted.no == plan.no) then
      bytes = bytes + #body
      found[#found + 1] = { upto, plan.id, kind, task and task.id or '', task and task.tenant or '', body }
    end
  end
  return { upto, #some == 4096 and 1 or 0, found }
end

-- Each with its number and key, the oldest first, also those that are over.
function questions.entries(book, after, limit)
  local found = call('ZRANGEBYSCORE', M .. 'book-numbers:' .. book, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  local entries = {}
  for index = 1, #found, 2 do
    entries[#entries + 1] = { found[index + 1], found[index], call('HGET', M .. 'book:' .. book, found[index]) or '' }
  end
  return entries
end

function questions.nodes()
  local nodes = {}
  for index, name in ipairs(call('ZRANGE', M .. 'nodes', 0, -1)) do
    local f = call('HMGET', M .. 'node:' .. name, 'boot', 'started', 'seen', 'hand', 'capacity', 'session')
    nodes[index] = { name, f[1], f[2], f[3], f[4], f[5], is_live(f[6]) and 1 or 0 }
  end
  return nodes
end

return questions[ARGV[FIRST]](unpack(ARGV, FIRST + 1))
