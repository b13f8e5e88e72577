-- A person's word on a plan: id, what becomes of each status, who asks, the version expected ('' for any), when,
-- whether a person wants it to run, and whether its version grows in any case.
local id, becomes, by, expected, at = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], ARGV[FIRST + 3], ARGV[FIRST + 4]
if is_lost() then return { 'lost' } end
local no = call('HGET', M .. 'plans', id)
if not no then return { 'missing' } end
local plan = plan_of(no)
if expected ~= '' and tonumber(expected) ~= plan.version then return { 'conflict', plan.version } end
local status = tonumber(string.sub(becomes, plan.status + 1, plan.status + 1))
if not status then return { 'refused', plan.status } end
local was_held = ARGV[FIRST + 5] == '1' and set_going(plan)
if set_plan_status(plan, status, by, at) then
  log_plan(plan, by, at)
elseif was_held or ARGV[FIRST + 6] == '1' then
  count_change(plan, was_held and by or '')
  log_plan(plan, by, at)
end
flush()
return { 'ok', plan_row(plan) }
