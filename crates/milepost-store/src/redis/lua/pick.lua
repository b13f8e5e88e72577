-- Finds tasks to claim, in order, with all that is needed to decide on them; `take` then takes those still free.
-- plan that is wanted ('' for any), how many, what time it is ('' by this server's clock), what the caller does with plans
-- that do not say, how far others must be set going, and the kinds of plans it can run.
local only, limit, now = ARGV[FIRST], tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2]) or clock
local by_default, needed = ARGV[FIRST + 3], tonumber(ARGV[FIRST + 4])
if is_lost() then return { 'lost' } end
reap()
if free_orphans() then
  flush()
  return { 'again' }
end
flush()

local kinds, known = {}, {}
for index = FIRST + 5, #ARGV do
  kinds[#kinds + 1] = ARGV[index]
  known[ARGV[index]] = true
end
local wanted
if only ~= '' then
  local no = call('HGET', M .. 'plans', only)
  if not no then return { 'missing' } end
  wanted = plan_of(no)
  -- What was said for it was for the node that runs it now, and no other.
  keep_to_this_era(no)
  if not known[wanted.kind] then
    flush()
    return { 'ok', 0, 0, '', {}, string.format('%.0f', now) }
  end
end

-- More than this is left to the next round, so that nobody else waits for long.
local MOST = 1000
local picked, tenants, used, looked = {}, {}, {}, 0
-- What was passed over might have been taken if something before it had ended at once.
local constrained, more = false, false

local function room(plan) return plan.max - plan.slots - (used[plan.no] or 0) end

local function is_automatic(plan) return only ~= '' or plan.says == 'auto' or (plan.says == '' and by_default == 'auto') end

-- Its PENDING tasks start without a person's word.
local function starts(plan) return is_automatic(plan) or plan_go(plan) >= needed end

local function may_start(no, plan) return starts(plan) or own_go(no) >= needed end

local function pick(task, plan)
  if task.tenant ~= '' then tenants[task.tenant] = true end
  if not task.slot then used[plan.no] = (used[plan.no] or 0) + 1 end
  picked[#picked + 1] = task
end

-- Free, taken in this very round, or busy.
local function tenant_of(task)
  if task.tenant == '' then return 'free' end
  if tenants[task.tenant] then return 'taken' end
  return blocker(task) and 'busy' or 'free'
end

local function try(task, plan)
  if #picked >= limit then return end
  looked = looked + 1
  local tenant = tenant_of(task)
  if tenant == 'taken' or (not task.slot and room(plan) <= 0) then
    constrained = true
  elseif tenant == 'free' then
    pick(task, plan)
  elseif task.place == 'undo' then
    line_up(task)
    more = true
  end
end

-- --- what was interrupted, by number; then what is due, by time ---

local function earlier(one, other)
  if one.at ~= other.at then return one.at < other.at end
  return one.no < other.no
end

local function try_all(list)
  table.sort(list, earlier)
  for _, found in ipairs(list) do
    local task = load_whole(found.task)
    local plan = plan_of(task.plan)
    if RECOVERY[plan.says] == task.place or may_start(task.no, plan) then try(task, plan) end
  end
end

local function found(list, no, at) list[#list + 1] = { at = tonumber(at), no = tonumber(no), task = no } end

local recovery, due, next_due = {}, {}, nil

-- Where the caller looks, by what it does with plans that do not say.
local goes_on_with = by_default == 'auto' and
  { recovery = { 'recovery', 'silent' }, due = { 'due', 'quiet' }, undo = { 'undo', 'quiet-undo' }, ready = { 'ready', 'quiet' } } or
  { recovery = { 'recovery' }, due = { 'due' }, undo = { 'undo' }, ready = { 'ready' } }

-- So many of what is due by now, and when the next will be; whether there is any of either. `may`, for a node that does not
-- know its era: what may not start hides little behind it, and the node asks again soon whatever is due.
local function due_of(list, most, may)
  local left, offset = most, 0
  repeat
    local page = call('ZRANGEBYSCORE', list, '-inf', now, 'WITHSCORES', 'LIMIT', offset, most)
    for index = 1, #page, 2 do
      local no = unpad(page[index])
      if left > 0 and (not may or may(no)) then
        found(due, no, page[index + 1])
        left = left - 1
      end
    end
    offset = offset + most
  until left == 0 or #page < 2 * most or offset >= MOST
  if may then return left < most end
  local later = call('ZRANGEBYSCORE', list, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if later then next_due = math.min(next_due or math.huge, tonumber(later)) end
  return left < most or later
end

local function has_own_go(no) return own_go(no) >= needed end

-- Of a node that knows its era, all may start that are in the lists of what is asleep.
local may_wake = needed > 1 and function(no) return may_start(no, plan_of(call('HGET', M .. 'task:' .. no, 'plan'))) end

-- Also when the clock of whoever asked for it is ahead of the caller's.
local function undo_of(plan)
  local most = math.max(room(plan), 0) + 16
  if starts(plan) then return due_of(M .. 'undo:' .. plan.no, most) end
  return due_of(M .. 'letundo:' .. plan.no, most, needed > 1 and has_own_go)
end

if wanted then
  for _, no in ipairs(call('SMEMBERS', M .. 'idle:' .. wanted.no)) do
    local f = call('HMGET', M .. 'task:' .. no, 'place', 'wake')
    if f[1] == RECOVERY[wanted.says] then
      found(recovery, no, 0)
    elseif SLEEPS[f[1]] and tonumber(f[2]) <= now then
      found(due, no, f[2])
    elseif SLEEPS[f[1]] then
      next_due = math.min(next_due or math.huge, tonumber(f[2]))
    end
  end
  if room(wanted) > 0 then undo_of(wanted) end
else
  for _, kind in ipairs(kinds) do
    for _, place in ipairs(goes_on_with.recovery) do
      for _, no in ipairs(call('ZRANGE', M .. place .. ':' .. kind, 0, limit + 64)) do found(recovery, unpad(no), 0) end
    end
    for _, place in ipairs(goes_on_with.due) do
      due_of(M .. place .. ':' .. kind, limit + 64, may_wake)
    end
    local seen = {}
    for _, list in ipairs(goes_on_with.undo) do
      local left, offset = limit + 1, 0
      repeat
        local page = call('ZRANGE', M .. list .. '-plans:' .. kind, offset, offset + limit)
        for _, no in ipairs(page) do
          if not seen[no] and undo_of(plan_of(no)) then left = left - 1 end
          seen[no] = true
        end
        offset = offset + limit + 1
      until left <= 0 or #page <= limit or offset >= MOST
    end
  end
end
try_all(recovery)
try_all(due)

-- --- what is pending, by plan, priority and position ---

local function try_ready(plan)
  -- Only what was set going by itself does not line up among those that wait for a person.
  local all = starts(plan)
  local ready, offset = M .. (all and 'ready:' or 'letgo:') .. plan.no, 0
  while #picked < limit and room(plan) > 0 and looked < MOST do
    local members = call('ZRANGE', ready, offset, offset + math.min(limit - #picked, room(plan)) - 1)
    if #members == 0 then return end
    for _, member in ipairs(members) do
      local task = load_whole(unpad(member))
      local tenant = tenant_of(task)
      looked = looked + 1
      if tenant == 'busy' and all then
        line_up(task)
      else
        offset = offset + 1
        local may = tenant ~= 'busy' and (all or own_go(task.no) >= needed)
        if may and tenant == 'free' then pick(task, plan) elseif may then constrained = true end
      end
    end
  end
  if call('ZCARD', ready) > offset then
    constrained = true
    more = more or (looked >= MOST and #picked < limit)
  end
end

local candidates = {}
if wanted then
  if wanted.status == PLAN_RUNNING then candidates[1] = tonumber(wanted.no) end
else
  local seen = {}
  for _, kind in ipairs(kinds) do
    for _, list in ipairs(goes_on_with.ready) do
      for _, no in ipairs(call('ZRANGE', M .. list .. '-plans:' .. kind, 0, MOST)) do
        if not seen[no] then candidates[#candidates + 1] = tonumber(no) end
        seen[no] = true
      end
    end
  end
  table.sort(candidates)
end
for _, no in ipairs(candidates) do
  if #picked >= limit or looked >= MOST then
    constrained, more = true, more or #picked < limit
    break
  end
  try_ready(plan_of(string.format('%d', no)))
end

local tasks = {}
for index, task in ipairs(picked) do tasks[index] = describe(task, false) end
flush()
return { 'ok', more and 1 or 0, constrained and 1 or 0, next_due and string.format('%.0f', next_due) or '', tasks,
  string.format('%.0f', now) }
