-- The end of sessions: once ended, a session can change nothing, and what it had is there for others.

local PORTION = 500

local function end_session(session)
  call('ZREM', M .. 'sessions', session)
  call('SADD', M .. 'ended', session)
  call('HDEL', M .. 'claims', session)
  expiries[session] = false
end

-- Locks are keys that open by themselves: those that did while nobody could write are closed again.
local function put_off_locks(late)
  local kept = call('HGETALL', M .. 'locks')
  for index = 1, #kept, 2 do
    local key = P .. 'lock:tenant:' .. kept[index]
    local expires = call('PEXPIRETIME', key)
    local task = expires == -2 and load_task(string.match(kept[index + 1], '^%d+'))
    if expires >= 0 then
      call('PEXPIREAT', key, math.max(expires, math.min(expires + late, clock + LOCK_TTL)))
    elseif task then
      call('SET', key, owner_of(task), 'PX', LOCK_TTL)
      call('ZADD', M .. 'renew', clock, kept[index])
    end
  end
end

-- Time in which nobody could write counts against nobody. If any node was last heard of longer ago than those that live
-- need to say that they do, every lease and every lock is put off by the rest: a lease no further than a beat would.
local function forgive()
  local heard = call('HMGET', M .. 'heard', 'at', 'patience', 'lease')
  if not heard[1] then return end
  -- Where nobody lives, nobody is in time.
  local patience = call('EXISTS', M .. 'sessions') == 1 and heard[2] or 0
  local late = clock - heard[1] - patience
  if late <= 0 then return end
  local sessions = call('ZRANGE', M .. 'sessions', 0, -1, 'WITHSCORES')
  for index = 1, #sessions, 2 do
    local expires = tonumber(sessions[index + 1])
    call('ZADD', M .. 'sessions', math.max(expires, math.min(expires + late, clock + heard[3])), sessions[index])
  end
  expiries = {}
  put_off_locks(late)
  call('HSET', M .. 'heard', 'at', clock)
end

-- A node says that it lives. Where leases differ, the longest counts.
local function hear(lease, patience)
  forgive()
  if call('EXISTS', M .. 'sessions') == 1 then
    local heard = call('HMGET', M .. 'heard', 'lease', 'patience')
    lease, patience = math.max(lease, heard[1] or 0), math.max(patience, heard[2] or 0)
  end
  call('HSET', M .. 'heard', 'at', clock, 'lease', lease, 'patience', patience)
end

-- Ends those whose lease has run out by the store's clock. Whoever is late and not ended yet may still beat.
local function reap()
  forgive()
  for _, session in ipairs(call('ZRANGEBYSCORE', M .. 'sessions', '-inf', '(' .. clock)) do
    if session ~= me then end_session(session) end
  end
end

-- Makes orphans of what ended sessions had, so many at a time; true when there are more.
local function free_orphans()
  local left = PORTION
  for _, session in ipairs(call('SMEMBERS', M .. 'ended')) do
    local held = call('SPOP', M .. 'held:' .. session, left)
    for _, no in ipairs(held) do replace(no) end
    left = left - #held
    if left <= 0 then return true end
    call('SREM', M .. 'ended', session)
  end
  return false
end
