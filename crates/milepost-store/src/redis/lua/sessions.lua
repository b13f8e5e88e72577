-- The end of sessions: once ended, a session can change nothing, and what it had is there for others.

local PORTION = 500

local function end_session(session)
  call('ZREM', M .. 'sessions', session)
  call('SADD', M .. 'ended', session)
  call('HDEL', M .. 'claims', session)
  expiries[session] = false
end

-- Ends those whose lease has run out by the store's clock. Whoever is late and not ended yet may still beat.
local function reap()
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
