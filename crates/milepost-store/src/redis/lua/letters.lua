-- What somebody asks of a task that a node holds: 'post', 'letters', 'answer' or 'read', and what belongs to it; or 'call',
-- for whoever can do what this node cannot.
local HOUR = 3600000
local what, one, two, id = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], ARGV[FIRST + 3]

if what == 'post' then
  -- Posted again, it is still one letter.
  local known = M .. 'letter-id:' .. id
  local before = call('GET', known)
  if before then return tonumber(before) end
  local no = call('HGET', M .. 'task-numbers', one)
  local task = no and load_task(no)
  reap()
  if not task or task.lease == '0' or not is_member(task.session) then return 0 end
  local letter = call('HINCRBY', COUNTERS, 'letter', 1)
  local key, inbox = M .. 'letter:' .. letter, M .. 'letters:' .. task.session
  call('HSET', key, 'task', one, 'body', two, 'to', task.session, 'id', id)
  call('SET', known, letter, 'PX', HOUR)
  call('PEXPIRE', key, HOUR)
  call('ZADD', inbox, letter, letter)
  call('PEXPIRE', inbox, HOUR)
  call('PUBLISH', M .. 'called', 'letter ' .. task.session)
  return letter
end

if what == 'call' then
  call('PUBLISH', M .. 'called', 'work ' .. me)
  return 1
end

if what == 'letters' then
  local letters = {}
  if me == '' or not is_member(me) then return letters end
  for _, no in ipairs(call('ZRANGE', M .. 'letters:' .. me, 0, 999)) do
    local f = call('HMGET', M .. 'letter:' .. no, 'task', 'body', 'id')
    if f[1] then
      letters[#letters + 1] = { no, f[1], f[2], f[3] }
    else
      call('ZREM', M .. 'letters:' .. me, no)
    end
  end
  return letters
end

local key = M .. 'letter:' .. one
if what == 'answer' then
  if call('EXISTS', key) == 1 then
    call('HSETNX', key, 'answer', two)
    call('ZREM', M .. 'letters:' .. call('HGET', key, 'to'), one)
    call('PUBLISH', M .. 'called', 'answer ' .. one)
  end
  return 1
end
local f = call('HMGET', key, 'answer', 'to')
if f[1] then return { 'with', f[1] } end
return { f[2] and is_member(f[2]) and 'not yet' or 'never' }
