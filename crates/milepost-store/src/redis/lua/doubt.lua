-- What some tasks are held by, to find out which claims of this session had arrived. One that has not comes too late.
-- number of its last claim, and the tasks.
if is_lost() then return { 'lost' } end
call('HSET', M .. 'claims', me, ARGV[FIRST])
local grips = {}
for index = FIRST + 1, #ARGV do grips[#grips + 1] = call('HGET', M .. 'task:' .. ARGV[index], 'grip') or '' end
return { 'ok', grips }
