-- A person's word on a plan: id, what becomes of each status, who asks, the version expected ('' for any), when.
local id, becomes, by, expected, at = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], ARGV[FIRST + 3], ARGV[FIRST + 4]
if is_lost() then return { 'lost' } end
local no = call('HGET', M .. 'plans', id)
if not no then return { 'missing' } end
local plan = plan_of(no)
if expected ~= '' and tonumber(expected) ~= plan.version then return { 'conflict', plan.version } end
local status = tonumber(string.sub(becomes, plan.status + 1, plan.status + 1))
if not status then return { 'refused', plan.status } end
if set_plan_status(plan, status, by, at) then log_plan(plan, by, at) end
flush()
return { 'ok', plan_row(plan) }
