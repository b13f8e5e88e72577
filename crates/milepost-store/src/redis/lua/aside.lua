-- A task that cannot be read is left as it is, where no claim finds it, until a person has looked: number, version, why.
local task = load_task(ARGV[FIRST])
if task and task.version == ARGV[FIRST + 1] and not is_lost() then
  unplace(task, plan_of(task.plan))
  call('HSET', M .. 'task:' .. task.no, 'place', 'aside', 'reason', ARGV[FIRST + 2])
  flush()
end
return 1
