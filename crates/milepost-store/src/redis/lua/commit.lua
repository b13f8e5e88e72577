-- Many commits, each for itself: one that is refused does not fail the others. Two forms of them:
-- 'stage', for what only moves a task that is held from stage to stage: number, grip expected, whether progress is cleared,
-- new grip, id, version, row, image, checkpoint, node, snapshot, how much output, the output. It is answered with its position.
-- 'task', for all others: number, expected version, lease ('' for an operator), 'keep' or 'release', when to wake, 1 if an undo was asked for and 2 if a person
-- set it going, or both,
-- what the plan's command makes of each status ('' for none), and the change.

local function refusal(task, expected, lease)
  if is_lost() then return { 'fenced', task.lease } end
  local conflict = { 'conflict', task.version }
  if lease == '' then
    reap()
    if task.lease ~= '0' and is_member(task.session) then return { 'fenced', task.lease } end
  elseif task.lease == '0' then
    -- A commit that gave its lease back and is sent again hears that the first one had arrived.
    return task.version ~= expected and conflict or { 'fenced', '0' }
  elseif task.lease ~= lease or task.session ~= me or not is_member(me) then
    return { 'fenced', task.lease }
  end
  if task.version ~= expected then return conflict end
  return nil
end

local function hold_after(task, new, lease, keeps, wake, undo)
  local nobody = { lease = '0', session = '', wake = '', asked = false }
  if not is_active(new.status) then return nobody end
  if not keeps then
    nobody.wake = wake
    return nobody
  end
  if lease ~= '' then return { lease = task.lease, session = task.session, wake = '', asked = false } end
  if undo and new.status == ROLLING_BACK then
    return { lease = '0', session = '', wake = new.at, asked = not task.slot }
  end
  if task.lease == '0' then return { lease = '0', session = '', wake = task.wake, asked = task.asked } end
  return nobody
end

local function commit(no, expected, lease, keeps, wake, undo, lets_go, table_of_plan, new)
  local task = load_task(no)
  if not task then return { 'missing' } end
  local refused = refusal(task, expected, lease)
  if refused then return refused end
  local asked
  if table_of_plan ~= '' then
    -- Before anything is written: a plan that refuses its part refuses the whole commit.
    local plan = plan_of(task.plan)
    asked = tonumber(string.sub(table_of_plan, plan.status + 1, plan.status + 1))
    if not asked then return { 'refused', plan.status, plan.id } end
  end
  local clash = kept_entry(new.books)
  if clash then return clash end
  write_books(new.books)
  if lets_go then let_go(task, asked) end
  local before = task.status
  local at = store(task, new, hold_after(task, new, lease, keeps, wake, undo))
  if before == task.status and not asked then return { 'ok', at, '' } end
  local plan = plan_of(task.plan)
  local changed = asked and set_plan_status(plan, asked, '', new.at)
  changed = settle(plan, new.at) or changed
  if changed then log_plan(plan, '', new.at) end
  return { 'ok', at, changed and plan.status or '' }
end

local lost = is_lost()

-- Nothing that a claim looks at changes, so nothing else has to be read.
local function advance(at)
  local a = ARGV
  local no = a[at]
  local key = M .. 'task:' .. no
  if lost or call('HGET', key, 'grip') ~= a[at + 1] then return nil end
  call('HSET', key, 'grip', a[at + 3], 'image', a[at + 7])
  if a[at + 2] == '1' then call('HDEL', key, 'progress') end
  show_checkpoint(a[at + 4], a[at + 8], a[at + 5], a[at + 9])
  add_output(no, at + 11, tonumber(a[at + 11]))
  return append(no, a[at + 6], a[at + 10])
end

-- Why a commit that only moves a task on was refused.
local function refused_advance(at)
  local task = load_task(ARGV[at])
  if not task then return { 'missing' } end
  local version, lease = string.match(ARGV[at + 1], '^(%d+) (%d+)$')
  return refusal(task, version, lease) or { 'fenced', task.lease }
end

local answers, at = {}, FIRST
while at <= #ARGV do
  local a = ARGV
  if a[at] == 'stage' then
    local position = advance(at + 1)
    answers[#answers + 1] = position or refused_advance(at + 1)
    at = at + 13 + tonumber(a[at + 12])
  else
    local new, next = read_change(at + 8)
    local asked = tonumber(a[at + 6])
    answers[#answers + 1] = commit(a[at + 1], a[at + 2], a[at + 3], a[at + 4] == 'keep', a[at + 5], asked % 2 == 1,
      asked >= 2, a[at + 7], new)
    at = next
  end
end
sweep_books()
flush()
return answers
