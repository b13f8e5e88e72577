-- What every script begins with: the names of keys, the clock, the plans and the log. Scripts run one at a time, so
-- what is read here stays true until the script ends; plans are read once, changed in memory and written by `flush`.
--
-- ARGV: prefix, session of the caller ('' for a visitor), what settling makes of a plan, how long a tenant lock lasts.
-- All keys begin with the prefix, which is one hash tag on a cluster.

local call = redis.call
local P, me, SETTLED, LOCK_TTL = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local FIRST = 5 -- where a script's own arguments begin
local M = P .. 'mp:'
local COUNTERS = KEYS[1]

-- A number that only goes into calls is text: writing it out each time costs more than the call.
local DAY, WEEK = 86400000, '604800000'
local PENDING, RUNNING, PAUSED, COMPLETED, ROLLING_BACK = 0, 1, 2, 3, 6
local STATUSES = { [0] = 'PENDING', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED', 'ROLLING_BACK',
  'ROLLED_BACK', 'ROLLBACK_FAILED' }
local PLAN_READY, PLAN_RUNNING, PLAN_COMPLETED = 1, 2, 4
local PLAN_STATUSES = { [0] = 'CREATED', 'READY', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED' }

local time = call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_active(status) return status == RUNNING or status == ROLLING_BACK end
local function is_ended(status) return status > PAUSED and status ~= ROLLING_BACK end

-- A number as a member of a sorted set: members with one score are sorted as text.
local function pad(no) return string.format('%016d', no) end
local function unpad(text) return string.format('%d', text) end

-- Milliseconds as the outside reads them.
local function iso(ms)
  if ms == '' then return '' end
  ms = tonumber(ms)
  local floor = math.floor
  local days = floor(ms / 86400000)
  local rest = ms - days * 86400000
  local shifted = days + 719468
  local era = floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local turn = floor((5 * of_year + 2) / 153)
  local month = turn < 10 and turn + 3 or turn - 9
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year + era * 400 + (month <= 2 and 1 or 0), month,
    of_year - floor((153 * turn + 2) / 5) + 1, floor(rest / 3600000), floor(rest / 60000) % 60,
    floor(rest / 1000) % 60, rest % 1000)
end

-- --- who is there ---

local expiries = {}
local function expiry(session)
  if expiries[session] == nil then expiries[session] = call('ZSCORE', M .. 'sessions', session) end
  return expiries[session]
end

-- Not ended, though it may be late.
local function is_member(session) return session ~= '' and expiry(session) ~= false end
-- Its lease is good.
local function is_live(session) return is_member(session) and tonumber(expiry(session)) >= clock end
-- The caller was a node and is none any more: it may change nothing.
local function is_lost() return me ~= '' and not is_member(me) end

-- --- manual recovery ---

-- Which plans and tasks may be claimed without a person's word. The rule is that of `going.rs`; an era
-- lasts for as long as a node of it is there. Plans have a number of their own, and `going` has that of each task which
-- was set going by itself.

local SETTLED_SESSIONS, GOING = M .. 'settled', M .. 'going'
-- Those that want to know their era and could not be told yet.
local ASKING = M .. 'asking'
-- What was said that may be for this era or the next: 'p' or 't' and the number of the plan or task.
local SAID = M .. 'said'

-- A node is there that belongs to an era.
local function has_begun()
  for _, session in ipairs(call('SMEMBERS', SETTLED_SESSIONS)) do
    if is_live(session) then return true end
  end
  return false
end

-- The caller belongs to one.
local function is_settled() return me ~= '' and call('SISMEMBER', SETTLED_SESSIONS, me) == 1 end

-- What the word of a person is worth for a plan that says this. Only a node that belongs to an era knows which one it is for.
local function go_now(says) return (says == 'auto' or is_settled()) and 1 or 2 end

local function own_go(no) return tonumber(call('HGET', GOING, no) or 0) end

-- A plan that has ended is not set going, whatever it was for.
local function plan_go(plan) return plan.ended == '' and plan.go or 0 end

-- It says nothing against going on, or was set going.
local function plan_goes(plan) return plan.says == 'auto' or plan_go(plan) > 0 end

-- RUNNING, and nothing of it starts without a person's word.
local function waits_for_person(plan)
  if plan.status ~= PLAN_RUNNING or plan.says == 'auto' then return false end
  if plan.says == '' or plan.go ~= 1 then return plan.go < 1 end
  return not has_begun()
end

-- --- the log ---

-- One list of everything, of which a position is a place: 'c' and a task's number for its creation, 't', its number and
-- the row of its own log for a commit, 'p', a plan's number, its status, when and who asked for a change of a plan.
local LOG = M .. 'log'
local written, entries = nil, {}
local function newest()
  written = written or call('LLEN', LOG)
  return written + #entries
end

local function log(entry)
  entries[#entries + 1] = entry
  return newest()
end

local function write_log()
  for from = 1, #entries, 1000 do call('RPUSH', LOG, unpack(entries, from, math.min(from + 999, #entries))) end
  written, entries = nil, {}
end

-- --- plans ---

local plans = {}
local function plan_of(no)
  local plan = plans[no]
  if plan then return plan end
  local f = call('HMGET', M .. 'plan:' .. no, 'id', 'status', 'version', 'max', 'slots', 'kind', 'recovery', 'started',
    'ended', 'by', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'go')
  if not f[1] then return nil end
  plan = { no = no, id = f[1], status = tonumber(f[2]), version = tonumber(f[3]), max = tonumber(f[4]),
    slots = tonumber(f[5]), kind = f[6], says = f[7], go = tonumber(f[20] or 1), started = f[8], ended = f[9], by = f[10], counts = {} }
  for status = 0, 8 do plan.counts[status] = tonumber(f[11 + status]) end
  plans[no] = plan
  return plan
end

-- What was said for all plans, or for one, is for no other era than this.
local function keep_to_this_era(only)
  for _, said in ipairs(call('SMEMBERS', SAID)) do
    local no, is_plan = string.sub(said, 2), string.sub(said, 1, 1) == 'p'
    local of = is_plan and no or call('HGET', M .. 'task:' .. no, 'plan')
    if not only or of == only then
      call('SREM', SAID, said)
      local plan = is_plan and plan_of(no)
      if plan and plan.go > 1 then plan.go, plan.changed = 1, true end
      if not is_plan and own_go(no) > 1 then call('HSET', GOING, no, 1) end
    end
  end
end

-- A sign of life of the caller: if it belongs to an era, that is there, and all words were for it. Whoever is here and wants
-- to know belongs to it too from now on: one that is busy may ask no more before the caller is gone.
local function see()
  if not is_settled() then return end
  keep_to_this_era()
  for _, session in ipairs(call('SMEMBERS', ASKING)) do
    if is_member(session) then call('SADD', SETTLED_SESSIONS, session) end
  end
  call('DEL', ASKING)
end

local function open_tasks(plan)
  local counts = plan.counts
  return counts[PENDING] + counts[RUNNING] + counts[PAUSED] + counts[ROLLING_BACK]
end

local function count(plan, status, change)
  plan.counts[status] = plan.counts[status] + change
  plan.changed = true
end

local function log_plan(plan, by, at) log('p ' .. plan.no .. ' ' .. plan.status .. ' ' .. at .. ' ' .. by) end

-- Puts a plan where claims look for it, if it may have something to claim, and says so when that is news.
local woke = false
local function offer(plan, list, has)
  local candidates = M .. list .. '-plans:' .. plan.kind
  if not has then
    call('ZREM', candidates, plan.no)
  elseif call('ZADD', candidates, plan.no, plan.no) == 1 and plan.look ~= 'quietly' then
    woke = true
  end
end

local function look_at(plan)
  local free, goes = plan.slots < plan.max, plan_goes(plan)
  local runs = free and plan.status == PLAN_RUNNING
  local function has(list) return call('ZCARD', M .. list .. plan.no) > 0 end
  -- For nodes that go on with plans that do not say, also when others in the same era do not.
  if plan.says == '' and not goes then
    offer(plan, 'quiet', runs and has('ready:'))
    offer(plan, 'quiet-undo', free and has('undo:'))
  end
  offer(plan, 'ready', runs and has(goes and 'ready:' or 'letgo:'))
  offer(plan, 'undo', free and has(goes and 'undo:' or 'letundo:'))
  plan.look = false
end

-- Times are as the outside reads them. What has not happened yet has no field. Nothing is read back from what is shown, so
-- that a key which another program has made something else of must not keep a task from going on.
local try = redis.pcall
local function show(key, started, ended, was_ended, ...)
  if started ~= '' and ended ~= '' then
    try('HSET', key, 'startedAt', started, 'endedAt', ended, ...)
  elseif started ~= '' then
    try('HSET', key, 'startedAt', started, ...)
  elseif ended ~= '' then
    try('HSET', key, 'endedAt', ended, ...)
  else
    try('HSET', key, ...)
  end
  if was_ended and ended == '' then try('HDEL', key, 'endedAt') end
  try('PEXPIRE', key, WEEK)
end

-- The plan as redis-cli shows it.
local function show_plan(plan)
  show(P .. 'plan:' .. plan.id, iso(plan.started), iso(plan.ended), true, 'planId', plan.id, 'status', PLAN_STATUSES[plan.status],
    'maxConcurrency', plan.max)
  if plan.ended ~= '' then
    call('ZREM', M .. 'refresh', plan.no)
    call('ZREM', M .. 'open', plan.no)
  else
    call('ZADD', M .. 'refresh', 'NX', clock + DAY, plan.no)
    call('ZADD', M .. 'open', plan.no, plan.no)
  end
  plan.show = false
end

local function save_plan(plan)
  local c = plan.counts
  call('HSET', M .. 'plan:' .. plan.no, 'status', plan.status, 'version', plan.version, 'max', plan.max, 'slots',
    plan.slots, 'started', plan.started, 'ended', plan.ended, 'by', plan.by, 'recovery', plan.says, 'go', plan.go,
    'c0', c[0], 'c1', c[1], 'c2', c[2], 'c3', c[3], 'c4', c[4], 'c5', c[5], 'c6', c[6], 'c7', c[7], 'c8', c[8])
  plan.changed = false
end

-- Writes what was changed in memory, and tells the others if there is something new to claim; answers whether there is.
local function flush()
  for _, plan in pairs(plans) do
    if plan.changed then save_plan(plan) end
    if plan.look then look_at(plan) end
    if plan.show then show_plan(plan) end
  end
  if #entries > 0 then write_log() end
  local news = woke
  if news then call('PUBLISH', M .. 'called', 'work ' .. me) end
  woke = false
  return news
end

-- A plan for Rust to read.
local function plan_row(plan)
  local row = { plan.id, plan.status, plan.max, plan.version, plan.by,
    call('HGET', M .. 'plan:' .. plan.no, 'created'), plan.started, plan.ended, plan.no }
  for status = 0, 8 do row[#row + 1] = plan.counts[status] end
  row[#row + 1] = waits_for_person(plan) and 1 or 0
  return row
end
