-- New tasks join as PENDING, missing ones go with their logs, and the others keep what they have done.
-- plan number, its digest as it was read, plan id, start at once, when, request, its digest, whether busy tenants are
-- refused; six arguments that define the plan; how many tasks stay, go and join. For each that stays: number, version,
-- tenant, rank, body, checksum, what lists show, whether it awaits its message; for each that goes: number and version;
-- then those that join, and what the submission means for the books.
local a = FIRST
local no, seen, id, start, now = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3] == '1', ARGV[a + 4]
local request, request_digest, refuses = ARGV[a + 5], ARGV[a + 6], ARGV[a + 7] == '1'
local defined = a + 8
local stay, go, join = tonumber(ARGV[a + 14]), tonumber(ARGV[a + 15]), tonumber(ARGV[a + 16])
local STAY = 8
local first_stay = a + 17
local first_go = first_stay + stay * STAY
local first_join = first_go + go * 2
local books = first_join + join * NEW

if is_lost() then return { 'lost' } end
local kept = kept_answer(request, request_digest, now)
if kept then return kept end
local noted = kept_entry(books)
if noted then return noted end
if call('HGET', M .. 'plan:' .. no, 'digest') ~= seen then return { 'again' } end
local plan = plan_of(no)
if call('ZCARD', M .. 'tasks:' .. no) ~= stay + go then return { 'again' } end

reap()
local stored = {}
local function look(number, version)
  local task = load_task(number)
  if not task or task.version ~= version then return { 'again' } end
  if task.lease ~= '0' and is_member(task.session) then return { 'running' } end
  stored[number] = task
end
for index = 0, stay - 1 do
  local changed = look(ARGV[first_stay + index * STAY], ARGV[first_stay + index * STAY + 1])
  if changed then return changed end
end
for index = 0, go - 1 do
  local changed = look(ARGV[first_go + index * 2], ARGV[first_go + index * 2 + 1])
  if changed then return changed end
end
local clash = taken_id(first_join, NEW, join, no, id) or (refuses and busy_tenants(first_join, NEW, join, id))
if clash then return clash end

-- Nothing is refused from here on. Where tasks stand depends on what the plan is, so all of them leave their places.
for _, task in pairs(stored) do unplace(task, plan) end
for _, list in ipairs({ 'ready', 'quiet', 'undo', 'quiet-undo' }) do call('ZREM', M .. list .. '-plans:' .. plan.kind, no) end
define_plan(no, id, defined)
plan.max, plan.says, plan.kind = tonumber(ARGV[defined + 2]), ARGV[defined + 3], ARGV[defined + 4]
plan.version, plan.changed, plan.look, plan.show = plan.version + 1, true, true, true

local function redefine(at)
  local task = stored[ARGV[at]]
  local key, tenant = M .. 'task:' .. task.no, ARGV[at + 2]
  if task.tenant ~= tenant then
    unlock_tenant(task)
    if task.tenant ~= '' then
      call('ZREM', M .. 'tenant:' .. task.tenant, task.no)
      if call('GET', P .. 'index:tenant:' .. task.tenant) == task.id then index_tenant(task.tenant) end
    end
    task.tenant = tenant
    if tenant ~= '' then
      call('ZADD', M .. 'tenant:' .. tenant, task.no, task.no)
      index_tenant(tenant)
    end
    call('HSET', P .. 'task:' .. task.id, 'tenantId', tenant)
  end
  task.rank, task.awaits = tonumber(ARGV[at + 3]), ARGV[at + 7] == '1'
  -- It shows stages that may be others now.
  call('DEL', M .. 'snapshot:' .. task.no)
  put(task, plan)
  call('HSET', key, 'tenant', tenant, 'rank', task.rank, 'body', ARGV[at + 4], 'crc', ARGV[at + 5], 'image', ARGV[at + 6],
    'place', task.place)
end
for index = 0, stay - 1 do redefine(first_stay + index * STAY) end

if join > 0 then
  local first_no = numbers(join)
  insert_tasks(no, id, first_no, first_join, join, now)
  count(plan, PENDING, join)
  log_created(first_no, join)
end
for index = 0, go - 1 do
  local task = stored[ARGV[first_go + index * 2]]
  release_slot(task, plan)
  if task.lease ~= '0' then call('SREM', M .. 'held:' .. task.session, task.no) end
  count(plan, task.status, -1)
  unlock_tenant(task)
  delete_task(task.no, task.id, task.tenant, no)
end
if join > 0 and plan.status >= PLAN_COMPLETED then set_plan_status(plan, PLAN_READY, '', now) end
settle(plan, now)
-- Also when its status is the same: the tasks that it speaks for are others now.
log_plan(plan, '', now)
carry_on(plan, start, now)
write_books(books)
sweep_books()
flush()
local flat = { 0, join, go }
for _, value in ipairs(plan_row(plan)) do flat[#flat + 1] = value end
keep_answer(request, request_digest, now, flat)
return { 'ok', flat }
