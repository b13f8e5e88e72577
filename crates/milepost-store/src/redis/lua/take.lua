-- Takes the tasks that were decided on, each with lease, tenant lock and slot, if it is still as it was seen.
-- the caller's time, the number of its claim; for each: number, version, lease, waking time and plan's digest that were seen, its new lease, what
-- pausing makes of the plan's status ('' when the plan stays as it is), and the change.
local now = ARGV[FIRST]
if is_lost() then return { 'lost' } end
-- Nobody waits for it any more, and nobody would look for what it takes.
if tonumber(ARGV[FIRST + 1]) <= tonumber(call('HGET', M .. 'claims', me) or 0) then return { 'ok', {} } end

local function is_free(task, plan, version, lease, wake, digest)
  if task.version ~= version or task.lease ~= lease or task.wake ~= wake then return false end
  -- An update may have changed its stages since.
  if digest_of(plan.no) ~= digest then return false end
  if is_in_no_list(task.place) or task.place == 'idle' then return false end
  if task.status == PENDING and plan.status ~= PLAN_RUNNING then return false end
  return not blocker(task) and (task.slot or plan.slots < plan.max)
end

local function take(no, version, lease, wake, digest, new_lease, pausing, new)
  local task = load_task(no)
  if not task then return { 'gone' } end
  local plan = plan_of(task.plan)
  if not is_free(task, plan, version, lease, wake, digest) then return { 'gone' } end
  local clash = kept_entry(new.books)
  if clash then return clash end
  write_books(new.books)
  if not task.slot then
    task.slot = true
    plan.slots = plan.slots + 1
    plan.changed, plan.look = true, true
  end
  local held = is_active(new.status)
  if held or new.status == PAUSED then lock_tenant(task, now) end
  local before = task.status
  store(task, new, { lease = held and new_lease or '0', session = held and me or '', wake = '', asked = false })
  local changed = false
  if pausing ~= '' then
    -- A plan that cannot be paused any more stays as it is.
    local asked = tonumber(string.sub(pausing, plan.status + 1, plan.status + 1))
    changed = asked and set_plan_status(plan, asked, '', now) or false
  end
  if before ~= task.status then changed = settle(plan, now) or changed end
  if changed then log_plan(plan, '', now) end
  return { 'ok', changed and plan.id or '' }
end

local answers, at = {}, FIRST + 2
while at <= #ARGV do
  local a = ARGV
  local new, next = read_change(at + 7)
  answers[#answers + 1] = take(a[at], a[at + 1], a[at + 2], a[at + 3], a[at + 4], a[at + 5], a[at + 6], new)
  at = next
end
sweep_books()
flush()
return { 'ok', answers }
