//! Storing a plan, carrying on with one, and changing one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::plan::{OnTenantConflict, Plan, Settings, TaskDefinition, first_difference};
use milepost_core::planted::planted;
use milepost_core::task::{Event, PlanStatus, Record, Task, TaskSpec, TaskStatus};
use milepost_core::time::Timestamp;

use crate::books::BookChange;
use crate::error::{Clash, StoreError};
use crate::going;
use crate::model::{Difference, Resubmit, Start, Submission, Submitted, TaskRef, Wake};

use super::changes::Logged;
use super::data::{Data, Held, Hold, PlanEntry, TaskEntry};
use super::line::{Place, PlanLine};

impl Data {
    /// `from` is the session that it comes from, unless it is a visitor's.
    pub(super) fn submit(&mut self, from: Option<u64>, mut submission: Submission) -> Result<Submitted, StoreError> {
        let (request, now) = (submission.request.clone(), submission.now);
        if let Some(request) = &request
            && let Some(answer) = self.requests.replay(request, now)?
        {
            return Ok(answer);
        }
        let for_books = BookChange { keep: std::mem::take(&mut submission.entries), strike: Vec::new() };
        self.books.check(&for_books)?;
        let submitted = self.take_in(from, submission)?;
        self.books.write(for_books);
        if let Some(request) = request {
            self.requests.keep(request, &submitted, now);
        }
        Ok(submitted)
    }

    fn take_in(&mut self, from: Option<u64>, submission: Submission) -> Result<Submitted, StoreError> {
        let Submission { plan, start, resubmit, now, .. } = submission;
        let found = self.plan_nos.get(&plan.definition.id).copied();
        let (no, created, difference) = match found {
            None => {
                self.check_task_ids(&plan, None)?;
                self.check_tenants(&plan, None)?;
                (self.insert_plan(plan, start, now), true, Difference::default())
            }
            Some(no) => {
                let old = &self.plan_entry(no).plan;
                let difference = match (*old == plan, resubmit) {
                    (true, _) => Difference::default(),
                    (false, Resubmit::Same) => {
                        let (plan, difference) = (plan.definition.id.clone(), difference(old, &plan));
                        return Err(Clash::OtherContent { plan, difference }.into());
                    }
                    (false, Resubmit::Update) => {
                        self.check_idle(no)?;
                        self.check_task_ids(&plan, Some(no))?;
                        self.check_tenants(&plan, Some(no))?;
                        self.update_plan(no, plan, now)
                    }
                };
                (no, false, difference)
            }
        };
        if start == Start::AtOnce {
            let waits = matches!(self.plan_entry(no).status, PlanStatus::Created | PlanStatus::Ready);
            let was_held = self.set_going(from, no);
            if waits {
                self.set_status(no, PlanStatus::Running, None, now);
            }
            if was_held && !created {
                self.plan_entry_mut(no).version += 1;
            }
            if waits || was_held && !created {
                self.log_plan(no, None, now);
            }
        }
        Ok(Submitted { plan: self.plan_row(no), created, replayed: false, difference })
    }

    pub(super) fn check_task_ids(&self, plan: &Plan, no: Option<i64>) -> Result<(), Clash> {
        let mut seen = HashSet::new();
        for task in &plan.tasks {
            let owner =
                self.task_nos.get(&task.id).map(|task| self.entry(*task).plan).filter(|owner| Some(*owner) != no);
            let owner = match owner {
                Some(owner) => self.plan_entry(owner).plan.definition.id.clone(),
                None if seen.insert(&task.id) => continue,
                None => plan.definition.id.clone(),
            };
            return Err(Clash::TaskId { task: task.id.clone(), owner });
        }
        Ok(())
    }

    fn check_tenants(&self, plan: &Plan, no: Option<i64>) -> Result<(), Clash> {
        if plan.definition.settings.on_tenant_conflict == OnTenantConflict::Wait {
            return Ok(());
        }
        let is_new = |task: &&TaskDefinition| !self.task_nos.contains_key(&task.id);
        let tenants: BTreeSet<_> = plan.tasks.iter().filter(is_new).filter_map(|task| task.tenant.as_ref()).collect();
        let held_by_others =
            |tenant: &&_| self.locks.get(*tenant).is_some_and(|lock| Some(self.entry(lock.task).plan) != no);
        let busy: Vec<String> = tenants.into_iter().filter(held_by_others).map(ToString::to_string).collect();
        if busy.is_empty() { Ok(()) } else { Err(Clash::TenantsBusy { plan: plan.definition.id.clone(), busy }) }
    }

    fn check_idle(&self, plan: i64) -> Result<(), Clash> {
        let entry = self.plan_entry(plan);
        let runs = entry.order.iter().any(|no| matches!(self.held(*no), Held::Live { .. }));
        if runs && !planted("an update removes what runs") {
            return Err(Clash::Running { plan: entry.plan.definition.id.clone() });
        }
        Ok(())
    }

    fn insert_plan(&mut self, plan: Arc<Plan>, start: Start, now: Timestamp) -> i64 {
        let no = self.next_no();
        let (status, started_at) = match start {
            Start::AtOnce => (PlanStatus::Running, Some(now)),
            Start::Later => (PlanStatus::Ready, None),
        };
        self.plan_nos.insert(plan.definition.id.clone(), no);
        let entry = PlanEntry {
            plan: plan.clone(),
            status,
            version: 1,
            changed_by: None,
            created_at: now,
            started_at,
            ended_at: None,
            go: going::HELD,
            order: Vec::new(),
            statuses: Default::default(),
            slots: 0,
            line: PlanLine::default(),
        };
        self.plans.insert(no, entry);
        self.log_plan(no, None, now);
        let settings = Arc::new(plan.definition.settings.clone());
        for (at, task) in plan.tasks.iter().enumerate() {
            self.insert_task(no, at, &settings, task, now);
        }
        no
    }

    fn insert_task(&mut self, plan: i64, at: usize, settings: &Arc<Settings>, task: &TaskDefinition, now: Timestamp) {
        let no = self.next_no();
        let entry = self.plan_entry_mut(plan);
        entry.order.push(no);
        entry.count(TaskStatus::Pending, 1);
        let spec = Arc::new(TaskSpec::new(&entry.plan.definition, settings.clone(), task.clone(), now));
        self.task_nos.insert(task.id.clone(), no);
        if let Some(tenant) = &task.tenant {
            self.tenants.entry(tenant.clone()).or_default().insert(no);
        }
        let entry = TaskEntry {
            key: TaskRef { id: task.id.clone(), no },
            plan,
            at,
            task: Task::created(spec),
            events: vec![Record::new(now, Event::TaskCreated {})],
            hold: Hold::Nobody(Wake::Recovery),
            slot: false,
            place: Place::Nowhere,
            go: going::HELD,
            progress: None,
            output: Vec::new(),
        };
        self.tasks.insert(no, entry);
        self.log(Logged::Task { no, sequence: 1, count: 1 });
        self.place(no);
    }

    /// Tasks that stay keep their log and are folded again over their new definition.
    fn update_plan(&mut self, no: i64, plan: Arc<Plan>, now: Timestamp) -> Difference {
        let stored = std::mem::take(&mut self.plan_entry_mut(no).order);
        for task in &stored {
            self.unplace(*task);
        }
        let entry = self.plan_entry_mut(no);
        entry.plan = plan.clone();
        entry.version += 1;
        let settings = Arc::new(plan.definition.settings.clone());
        let mut difference = Difference::default();
        // Those that stay keep their places, and the new ones come after them.
        let mut wanted: HashMap<&TaskId, &TaskDefinition> = plan.tasks.iter().map(|task| (&task.id, task)).collect();
        let mut gone = Vec::new();
        for task in stored {
            match wanted.remove(&self.entry(task).key.id) {
                Some(definition) => {
                    let at = self.plan_entry(no).order.len();
                    self.redefine_task(task, at, &settings, definition);
                }
                None => gone.push(task),
            }
        }
        for task in plan.tasks.iter().filter(|task| wanted.contains_key(&task.id)) {
            difference.added += 1;
            let at = self.plan_entry(no).order.len();
            self.insert_task(no, at, &settings, task, now);
        }
        for task in gone {
            difference.removed += 1;
            self.remove_task(task);
        }
        if difference.added > 0 && self.plan_entry(no).status.is_ended() {
            self.set_status(no, PlanStatus::Ready, None, now);
        }
        self.look_at_plan(no);
        self.settle(no, now);
        // Also when its status is the same: the tasks that it speaks for are others now.
        self.log_plan(no, None, now);
        difference
    }

    fn redefine_task(&mut self, no: i64, at: usize, settings: &Arc<Settings>, task: &TaskDefinition) {
        let entry = self.entry(no);
        let (plan, old) = (entry.plan, entry.task.spec().clone());
        if old.tenant != task.tenant {
            self.unlock(no);
            if let Some(tenant) = &old.tenant {
                self.forget_tenant(tenant, no);
            }
            if let Some(tenant) = &task.tenant {
                self.tenants.entry(tenant.clone()).or_default().insert(no);
            }
        }
        let definition = &self.plan_entry(plan).plan.definition;
        let spec = Arc::new(TaskSpec::new(definition, settings.clone(), task.clone(), old.created_at));
        self.plan_entry_mut(plan).order.push(no);
        let entry = self.entry_mut(no);
        let log = entry.events.iter().skip(1);
        entry.task = log.fold(Task::created(spec), |task, record| {
            task.apply(record).expect("whether a log can happen is not a matter of definitions")
        });
        entry.at = at;
        self.place(no);
    }

    fn remove_task(&mut self, no: i64) {
        self.give_back_slot(no);
        self.unlock(no);
        let entry = self.tasks.remove(&no).expect("task numbers inside the store are good");
        self.task_nos.remove(&entry.key.id);
        self.plan_entry_mut(entry.plan).count(entry.task.status(), -1);
        if let Some(tenant) = &entry.task.spec().tenant {
            self.forget_tenant(tenant, no);
        }
    }

    fn forget_tenant(&mut self, tenant: &milepost_core::id::Tenant, no: i64) {
        let tasks = self.tenants.get_mut(tenant).expect("a task is known by its tenant");
        tasks.remove(&no);
        if tasks.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

/// What to tell a person who submits other content under a plan's name.
fn difference(old: &Plan, new: &Plan) -> String {
    first_difference(old, new).unwrap_or_else(|| "its content differs".to_owned())
}
