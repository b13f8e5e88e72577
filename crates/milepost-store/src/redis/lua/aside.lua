-- A task that cannot be read is left as it is, where no claim finds it, until a person has looked: number, version, why.
-- What it leaves to others until then is its slot and its tenant.
local task = load_task(ARGV[FIRST])
if task and task.version == ARGV[FIRST + 1] and not is_lost() then
  local plan = plan_of(task.plan)
  unplace(task, plan)
  release_slot(task, plan)
  call('HSET', M .. 'task:' .. task.no, 'place', 'aside', 'slot', '0', 'reason', ARGV[FIRST + 2])
  unlock_tenant(task)
  flush()
end
return 1
