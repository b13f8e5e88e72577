-- Progress and output, for people to see. For each: task, progress ('' for none), how many pieces of output, the pieces.
-- Notes of tasks that are gone by now are dropped: nobody can ask for them.
if is_lost() then return { 'lost' } end
local at = FIRST
while at <= #ARGV do
  local no, progress, pieces = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if call('EXISTS', M .. 'task:' .. no) == 1 then
    if progress ~= '' then call('HSET', M .. 'task:' .. no, 'progress', progress) end
    for index = 1, pieces do call('RPUSH', M .. 'output:' .. no, ARGV[at + 2 + index]) end
  end
  at = at + 3 + pieces
end
return { 'ok' }
