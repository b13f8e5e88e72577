-- All that a task is rebuilt from, for Rust to read: its definition, where its log ends, and the log itself, from the last
-- snapshot on if it is long.

local LONG = 500

local digests = {}
local function digest_of(plan)
  digests[plan] = digests[plan] or call('HGET', M .. 'plan:' .. plan, 'digest') or ''
  return digests[plan]
end

-- A task with what is needed to describe it, all read at once.
local function load_whole(no)
  local f = call('HMGET', M .. 'task:' .. no, 'id', 'plan', 'tenant', 'rank', 'status', 'grip', 'session', 'wake', 'place',
    'slot', 'asked', 'paused', 'created', 'body', 'crc', 'progress', 'image')
  local task = task_from(no, f)
  if task then
    task.created, task.body, task.crc, task.progress, task.image = f[13], f[14], f[15], f[16] or '', f[17]
  end
  return task
end

local function describe(task, from_start)
  local rows, snapshot, from = {}, '', 0
  if tonumber(task.version) >= LONG and not from_start then
    local kept = call('HMGET', M .. 'snapshot:' .. task.no, 'rows', 'body')
    if kept[1] then from, snapshot = kept[1], kept[2] end
  end
  if task.version ~= '1' then rows = call('LRANGE', M .. 'events:' .. task.no, from, -1) end
  return { task.no, task.id, task.plan, task.tenant, task.created, task.body, task.crc, task.rank, task.status, task.version,
    task.lease, task.wake, task.progress, task.image, digest_of(task.plan), snapshot, rows }
end
