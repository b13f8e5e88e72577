-- A whole plan, or nothing: step ('whole', 'begin', 'tasks', 'open' or 'drop'), number of a plan that is being loaded,
-- plan id, start at once, when, request, its digest, whether busy tenants are refused; six arguments that define the plan;
-- the number of the first task, how many tasks the plan has, what it means for the books, and the tasks of this step.
--
-- A large plan comes in steps: its tasks are there before the plan is, and nothing can see a task without a plan.
local a = FIRST
local step, loaded, id, start, now = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3] == '1', ARGV[a + 4]
local request, request_digest, refuses = ARGV[a + 5], ARGV[a + 6], ARGV[a + 7] == '1'
local defined, first_no, all = a + 8, tonumber(ARGV[a + 14]), tonumber(ARGV[a + 15])
local books = a + 16
local first = after_books(books)
local tasks = (#ARGV - first + 1) / NEW

local function answer(plan, created)
  local row = plan_row(plan)
  local flat = { created and 1 or 0, 0, 0 }
  for _, value in ipairs(row) do flat[#flat + 1] = value end
  keep_answer(request, request_digest, now, flat)
  return { 'ok', flat }
end

local function known()
  local kept = kept_answer(request, request_digest, now)
  if kept then return kept end
  local clash = kept_entry(books)
  if clash then return clash end
  local no = call('HGET', M .. 'plans', id)
  if not no then return nil end
  if call('HGET', M .. 'plan:' .. no, 'digest') ~= ARGV[defined] then return { 'other', no } end
  local plan = plan_of(no)
  carry_on(plan, start, now)
  write_books(books)
  sweep_books()
  flush()
  return answer(plan, false)
end

local function open(no)
  local plan = new_plan(no, id, start and PLAN_RUNNING or PLAN_READY, now, defined, all)
  open_plan(plan, now, defined)
  log_plan(plan, '', now)
  log_created(first_no, all)
  write_books(books)
  sweep_books()
  -- As a task that has its message runs by preference where that came in, so does the plan that a message makes.
  if heard and me ~= '' then plan.look = 'quietly' end
  flush()
  return answer(plan, true)
end

local steps = {}

function steps.whole()
  local found = known()
  if found then return found end
  local load = other_load(id)
  if load then return load end
  local clash = taken_id(first, NEW, tasks, '', id) or (refuses and busy_tenants(first, NEW, tasks, id))
  if clash then return clash end
  local no = plan_number()
  first_no = numbers(tasks)
  insert_tasks(no, id, first_no, first, tasks, now)
  return open(no)
end

function steps.begin()
  local found = known()
  if found then return found end
  return other_load(id) or begin_load(id, all)
end

function steps.tasks()
  if not is_loading(id, loaded) then return { 'dropped' } end
  local clash = taken_id(first, NEW, tasks, '', id) or (refuses and busy_tenants(first, NEW, tasks, id))
  if clash then return clash end
  insert_tasks(loaded, id, first_no, first, tasks, now)
  go_on_loading(id, loaded)
  return { 'loaded' }
end

function steps.open()
  if not is_loading(id, loaded) or call('ZCARD', M .. 'tasks:' .. loaded) ~= all then return { 'dropped' } end
  local clash = kept_entry(books)
  if clash then return clash end
  end_load(id)
  return open(loaded)
end

function steps.drop() return drop_load(id, loaded) end

if is_lost() then return { 'lost' } end
return steps[step]()
