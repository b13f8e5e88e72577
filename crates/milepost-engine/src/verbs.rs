//! The operator's verbs, on a task, a tenant's task, or a plan with all of its tasks.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use milepost_core::api::LeftTask;
use milepost_core::id::{IdempotencyKey, PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{PlanCommand, PlanRejection, next_plan_status};
use milepost_core::planted::planted;
use milepost_core::task::{By, Command, Decision, PlanStatus, Record, Rejection, TaskStatus, decide};
use milepost_store::{
    Commit, Holder, LeaseChange, PlanChange, PlanRow, StoreError, StoredTask, TaskQuery, TaskRow, TasksOf, Wake,
};
use tokio::sync::{mpsc, oneshot};

use crate::attempt::{MAX_RESULT_BYTES, size};
use crate::engine::{Engine, Inner};
use crate::feed::FeedItem;
use crate::runner::Order;
use crate::tenants::task_of_tenant;
use crate::workflow::open_children;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Plan(PlanId),
    Task(TaskId),
    /// The task of the tenant that matters most: see `task_of_tenant`.
    Tenant(Tenant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Start,
    Pause,
    Resume,
    Cancel,
    Retry {
        from_checkpoint: bool,
    },
    Rollback,
    ResetFailed,
    /// Ends a damaged task as FAILED.
    Repair,
}

/// What a verb did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// How many tasks were changed.
    pub tasks: u64,
    pub plan: Option<(PlanId, PlanStatus)>,
    /// The task's status, when the verb was for one task.
    pub task: Option<(TaskId, TaskStatus)>,
    /// Tasks of a plan that the verb was meant for and that need something else first.
    pub left: Vec<LeftTask>,
}

impl Effect {
    /// Of a verb on one task.
    pub fn on_task(task: TaskId, status: TaskStatus) -> Self {
        Self { tasks: 1, plan: None, task: Some((task, status)), left: Vec::new() }
    }
}

/// What became of the tasks of a plan that a verb was meant for.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    tasks: u64,
    left: Vec<LeftTask>,
    /// Why the plan itself refused it for some of those that are left.
    refused: Option<PlanRejection>,
}

#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Plan(#[from] PlanRejection),
    #[error("{0}")]
    Refused(String),
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    /// It was changed by somebody else since the person looked at it.
    #[error("{what} is at version {found}, expected {expected}")]
    Version { what: String, expected: u64, found: u64 },
    /// The task went from one hand to another again and again.
    #[error("the task is changing too fast; try again")]
    Moved,
    /// It may have been done; and what forbids it now.
    #[error("the node that had the task went away before it said whether it was done{}", and_now(.0.as_deref()))]
    InDoubt(Option<Box<VerbError>>),
    #[error(transparent)]
    Store(StoreError),
}

fn and_now(refusal: Option<&VerbError>) -> String {
    refusal.map_or_else(String::new, |refusal| format!("; now: {refusal}"))
}

impl From<StoreError> for VerbError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { what, id } => VerbError::NotFound { what, id },
            StoreError::Plan(rejection) => VerbError::Plan(rejection),
            StoreError::Task(rejection) => VerbError::Rejected(rejection),
            StoreError::PlanConflict { plan, expected, found } => {
                VerbError::Version { what: format!("plan {plan}"), expected, found }
            }
            other => VerbError::Store(other),
        }
    }
}

impl VerbError {
    pub(crate) fn task_version(task: &TaskId, expected: u64, found: u64) -> Self {
        VerbError::Version { what: format!("task {task}"), expected, found }
    }

    fn is_refusal(&self) -> bool {
        match self {
            VerbError::Rejected(_) | VerbError::Plan(_) | VerbError::Refused(_) | VerbError::Version { .. } => true,
            VerbError::NotFound { .. } | VerbError::Moved | VerbError::InDoubt(_) | VerbError::Store(_) => false,
        }
    }
}

/// Tasks of a plan that are dealt with at once, so that their commits share syncs.
const AT_ONCE: usize = PAGE;
/// A page of a plan's tasks.
const PAGE: usize = 500;

/// What is asked of one task.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    /// What becomes of its plan in the same commit.
    pub(crate) plan: Option<PlanCommand>,
    /// Refused if the task is at another version.
    pub(crate) expected: Option<u64>,
}

impl Engine {
    /// Does what a person asked; answered once it is durable.
    pub async fn operate(&self, target: Target, verb: Verb, by: By) -> Result<Effect, VerbError> {
        self.operate_expecting(target, verb, by, None).await
    }

    /// The same, if the plan or task is still at the version that the person looked at.
    pub async fn operate_expecting(
        &self,
        target: Target,
        verb: Verb,
        by: By,
        expected: Option<u64>,
    ) -> Result<Effect, VerbError> {
        let inner = self.inner().clone();
        self.see_through(async move { inner.operate(target, verb, by, expected).await }).await
    }
}

impl Asked {
    /// A command that concerns its task alone, at whatever version that is.
    pub(crate) fn simply(command: Command) -> Self {
        Self { command, plan: None, expected: None }
    }
}

impl Engine {
    /// Sends a workflow a message, which it may be waiting for or ask for later; answered once it is durable.
    pub async fn signal(
        &self,
        task: &TaskId,
        name: StageName,
        payload: serde_json::Value,
        by: By,
    ) -> Result<TaskStatus, VerbError> {
        self.signal_under(self.inner().new_key(), task, name, payload, by).await
    }

    /// The same, under a key of the sender's own: sent again, it is not received again, and answered as if it were. A
    /// workflow remembers its last thousand signals.
    pub async fn signal_under(
        &self,
        key: IdempotencyKey,
        task: &TaskId,
        name: StageName,
        payload: serde_json::Value,
        by: By,
    ) -> Result<TaskStatus, VerbError> {
        let bytes = size(&payload);
        if bytes > MAX_RESULT_BYTES {
            let words = format!("signal `{name}` has {bytes} bytes, more than 1 MiB; send a reference instead");
            return Err(VerbError::Refused(words));
        }
        let (inner, task) = (self.inner().clone(), task.clone());
        // The holder of the task may commit it and die before it answers: whoever is asked next knows it by its key.
        let signal = Asked::simply(Command::Signal { name, payload, by, id: Some(key) });
        if planted("a signal is answered too early") {
            drop(tokio::spawn(async move { inner.command(&task, signal, None).await }));
            return Ok(TaskStatus::Running);
        }
        self.see_through(async move { inner.command(&task, signal, None).await }).await
    }
}

impl Inner {
    async fn operate(
        self: &Arc<Self>,
        target: Target,
        verb: Verb,
        by: By,
        expected: Option<u64>,
    ) -> Result<Effect, VerbError> {
        let effect = match target {
            Target::Plan(plan) => self.operate_plan(&plan, verb, &by, expected).await,
            Target::Task(task) => self.operate_task(&task, verb, by, expected).await,
            Target::Tenant(tenant) => {
                let task = task_of_tenant(&*self.store, &tenant).await?;
                let task = task.ok_or(VerbError::NotFound { what: "task of tenant", id: tenant.to_string() })?;
                self.operate_task(&task.key.id, verb, by, expected).await
            }
        };
        // Also after an error: some tasks of a plan may have been changed before it.
        self.wake();
        effect
    }

    async fn operate_task(
        self: &Arc<Self>,
        task: &TaskId,
        verb: Verb,
        by: By,
        expected: Option<u64>,
    ) -> Result<Effect, VerbError> {
        let (command, plan) = match verb {
            Verb::Pause => (Command::Pause(by), None),
            Verb::Resume => (Command::Resume(by), None),
            Verb::Cancel => (Command::Cancel(by), None),
            Verb::Retry { from_checkpoint } => (Command::Retry { by, from_checkpoint }, Some(PlanCommand::Retry)),
            Verb::ResetFailed => (Command::Retry { by, from_checkpoint: true }, Some(PlanCommand::Reset)),
            Verb::Rollback => (Command::Rollback(by), None),
            Verb::Repair => (Command::Repair(by), None),
            Verb::Start => {
                return Err(VerbError::Refused(format!(
                    "a task is started with its plan; `milepost retry {task}` runs a failed one again"
                )));
            }
        };
        let status = self.command(task, Asked { command, plan, expected }, None).await?;
        Ok(Effect::on_task(task.clone(), status))
    }

    /// Gives a task a command, through its runner if it is in hand, else by a commit of our own.
    pub(crate) async fn command(
        self: &Arc<Self>,
        task: &TaskId,
        asked: Asked,
        mut seen: Option<StoredTask>,
    ) -> Result<TaskStatus, VerbError> {
        let mut in_doubt = false;
        // It may be claimed or given back between the look and the commit; each round sees where it went.
        for round in 0..20 {
            let outcome = match self.runner(task) {
                Some(runner) => self.order(&runner, asked.command.clone(), asked.expected).await,
                None => self.command_unheld(task, asked.clone(), seen.take()).await,
            };
            match outcome {
                Err(error @ (VerbError::Moved | VerbError::InDoubt(_))) => {
                    in_doubt |= matches!(error, VerbError::InDoubt(_));
                    // Whoever takes it on or gives it back may need a moment on a busy machine.
                    tokio::time::sleep(Duration::from_millis(round)).await;
                }
                // What forbids it now may be that it was done.
                Err(error) if in_doubt && error.is_refusal() => {
                    return Err(VerbError::InDoubt(Some(Box::new(error))));
                }
                outcome => return outcome,
            }
        }
        Err(if in_doubt { VerbError::InDoubt(None) } else { VerbError::Moved })
    }

    /// Gives a runner of this node a command.
    pub(crate) async fn order(
        &self,
        runner: &mpsc::UnboundedSender<Order>,
        command: Command,
        expected: Option<u64>,
    ) -> Result<TaskStatus, VerbError> {
        let (reply, answer) = oneshot::channel();
        match runner.send(Order { command, expected, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(VerbError::InDoubt(None))),
            Err(_) => Err(VerbError::Moved),
        }
    }

    async fn command_unheld(
        self: &Arc<Self>,
        task: &TaskId,
        asked: Asked,
        seen: Option<StoredTask>,
    ) -> Result<TaskStatus, VerbError> {
        let stored = match seen {
            Some(stored) => Some(stored),
            None => self.store.task(task).await?,
        };
        let mut stored = stored.ok_or_else(|| VerbError::NotFound { what: "task", id: task.to_string() })?;
        // What no claim could take is given up like what cannot be read.
        if let (Command::Repair(_), Some(reason)) = (&asked.command, &stored.set_aside) {
            stored.task.mark_damaged(reason);
        }
        let held = stored.epoch > 0 && !stored.orphaned && stored.task.status().is_active();
        if held && self.membership.is_shared() {
            return self.ask_holder(task, &asked).await;
        }
        let version = stored.task.version();
        // What is decided here is committed for this very version, so that nothing can come in between.
        if let Some(expected) = asked.expected.filter(|expected| *expected != version) {
            return Err(VerbError::task_version(task, expected, version));
        }
        let decision = self.decide_unheld(&stored, asked.command)?;
        let status = decision.task.status();
        if decision.events.is_empty() {
            self.cancel_unheard_children(&decision.task);
            return Ok(status);
        }
        let plan_id = decision.task.spec().plan.clone();
        let (events, changed): (Arc<[Record]>, _) = (decision.events.into(), Arc::new(decision.task));
        // A rollback that was asked for may begin at once; anything else that is active waits for its recovery.
        let lease = match status {
            TaskStatus::RollingBack => LeaseChange::Keep,
            // A workflow that had given its lease back to wait has been told something.
            TaskStatus::Running if changed.flow().is_some() && !changed.interrupted() => {
                LeaseChange::Release(Wake::At(changed.updated_at()))
            }
            TaskStatus::Pending
            | TaskStatus::Running
            | TaskStatus::Paused
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => LeaseChange::Release(Wake::Recovery),
        };
        let (ended, children) = (status.is_ended(), open_children(&stored.task));
        let told = (ended && changed.spec().parent.is_some()).then(|| changed.clone());
        let commit = Commit {
            key: stored.key,
            holder: Holder::Operator,
            expected: version,
            events: events.clone(),
            task: changed.clone(),
            lease,
            plan: asked.plan,
            output: Vec::new(),
        };
        match self.store.commit(commit).await {
            Ok(committed) => {
                // It may be ready now, and what it had may be what another waits for.
                self.wake();
                self.happened(&events, &changed);
                if ended {
                    self.cancel_children(task, children);
                    told.iter().for_each(|task| self.tell_parent(task));
                }
                self.feed.publish(|| FeedItem::of(&changed, events));
                if let Some(status) = committed.plan {
                    self.plan_changed(&plan_id, status);
                }
                Ok(status)
            }
            Err(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => Err(VerbError::Moved),
            Err(error) => Err(error.into()),
        }
    }

    /// A task whose node went away is first recorded as interrupted, so that the command meets it as it is; so is one that
    /// slept then, if it may not wake by itself.
    fn decide_unheld(&self, stored: &StoredTask, command: Command) -> Result<Decision, Rejection> {
        let now = self.clock.now();
        let status = stored.task.status();
        let held = stored.waits_for_person && status == TaskStatus::Pending;
        // One that has never run begins at its start in any case; of any other, that is not what was asked.
        let keeps_all = |from_checkpoint| from_checkpoint || stored.task.started_at().is_none();
        let command = match command {
            Command::Resume(by) if held => Command::LetGo(by),
            Command::Retry { by, from_checkpoint } if held && keeps_all(from_checkpoint) => Command::LetGo(by),
            command => command,
        };
        let sleeps = stored.waits_for_person && status.is_active() && wakes(&command);
        if !(stored.orphaned || sleeps) || stored.task.interrupted() || stored.task.damage().is_some() {
            return decide(&stored.task, command, now);
        }
        let reason = "its node went away".to_owned();
        let Decision { mut events, task } = decide(&stored.task, Command::Interrupt { reason }, now)?;
        let second = decide(&task, command, now)?;
        events.extend(second.events);
        Ok(Decision { events, task: second.task })
    }

    async fn operate_plan(
        self: &Arc<Self>,
        plan: &PlanId,
        verb: Verb,
        by: &By,
        expected: Option<u64>,
    ) -> Result<Effect, VerbError> {
        use TaskStatus::{Failed, Paused, RollbackFailed, Running};
        let changed = match verb {
            Verb::Start => {
                self.change_plan(plan, PlanCommand::Start, by, expected).await?;
                Changed::default()
            }
            Verb::Pause => {
                self.change_plan(plan, PlanCommand::Pause, by, expected).await?;
                self.for_each(plan, &[Running], any, Command::Pause(by.clone()), None).await?
            }
            Verb::Resume => {
                self.change_plan(plan, PlanCommand::Resume, by, expected).await?;
                let waits = |row: &TaskRow| row.status == Paused || row.pause_requested || row.interrupted;
                self.for_each(plan, &[Paused, Running], waits, Command::Resume(by.clone()), None).await?
            }
            Verb::Cancel => {
                self.change_plan(plan, PlanCommand::Cancel, by, expected).await?;
                let changed = self.cancel_tasks(plan, by).await?;
                // A workflow is a plan of one task, of the same name.
                if changed.tasks == 0
                    && let Ok(task) = TaskId::parse(plan.as_str())
                    && let Some(stored) = self.store.task(&task).await?
                {
                    self.cancel_unheard_children(&stored.task);
                }
                changed
            }
            Verb::Retry { from_checkpoint } => {
                let again = |row: &TaskRow| row.status == Failed || row.interrupted;
                let (which, nothing) = (&[Failed, Running], "has no failed or interrupted task to retry");
                let row = self.plan_row(plan).await?;
                let is_said_of_plan = row.waits_for_person || expected.is_some();
                if is_said_of_plan {
                    is_expected(&row, expected)?;
                    if !row.waits_for_person {
                        self.some_of(plan, which, again, nothing).await?;
                    }
                    self.change_plan(plan, PlanCommand::RetryTasks, by, expected).await?;
                }
                let command = Command::Retry { by: by.clone(), from_checkpoint };
                let retried = self.for_each(plan, which, again, command, Some(PlanCommand::Retry)).await?;
                // What is recorded of the plan is not refused any more: what waited for a person's word has it now.
                if is_said_of_plan { retried } else { some(plan, retried, nothing)? }
            }
            Verb::ResetFailed => {
                // Refused where it makes no sense, also when there is nothing to reset. The plan itself is reset with its
                // first task: READY with nothing to run, it would never end once started.
                self.may_reset(plan).await?;
                if expected.is_some() {
                    self.change_plan(plan, PlanCommand::ChangeTasks, by, expected).await?;
                }
                let command = Command::Retry { by: by.clone(), from_checkpoint: true };
                let reset = self.for_each(plan, &[Failed], any, command, Some(PlanCommand::Reset)).await?;
                if expected.is_some() { reset } else { reset.unless_all_left()? }
            }
            Verb::Repair => {
                let words = "a repair is for one task; `milepost status` of the plan shows which are damaged";
                return Err(VerbError::Refused(words.to_owned()));
            }
            Verb::Rollback => {
                let (which, nothing) =
                    (&[Failed, Paused, RollbackFailed], "has no failed or paused task with something to roll back");
                if expected.is_some() {
                    is_expected(&self.plan_row(plan).await?, expected)?;
                    self.some_of(plan, which, any, nothing).await?;
                    self.change_plan(plan, PlanCommand::ChangeTasks, by, expected).await?;
                }
                let undone = self.for_each(plan, which, any, Command::Rollback(by.clone()), None).await?;
                if undone.tasks == 0 {
                    self.plan_row(plan).await?;
                }
                if expected.is_some() { undone } else { some(plan, undone, nothing)? }
            }
        };
        let row = self.plan_row(plan).await?;
        Ok(Effect { tasks: changed.tasks, plan: Some((plan.clone(), row.status)), task: None, left: changed.left })
    }

    async fn plan_row(&self, plan: &PlanId) -> Result<PlanRow, VerbError> {
        let row = self.store.plan(plan).await?;
        row.ok_or_else(|| VerbError::NotFound { what: "plan", id: plan.to_string() })
    }

    /// A completed plan has nothing that failed: zero is a good answer.
    async fn may_reset(&self, plan: &PlanId) -> Result<(), VerbError> {
        let row = self.plan_row(plan).await?;
        match next_plan_status(plan.as_str(), row.status, &row.counts, PlanCommand::Reset) {
            Err(rejection) if rejection.status != PlanStatus::Completed => Err(rejection.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Refuses, before anything is changed, what would find no task to change.
    async fn some_of(
        &self,
        plan: &PlanId,
        statuses: &[TaskStatus],
        wanted: fn(&TaskRow) -> bool,
        otherwise: &str,
    ) -> Result<(), VerbError> {
        let mut after = None;
        loop {
            let query = TaskQuery { of: TasksOf::Plan(plan.clone()), statuses: statuses.to_vec(), after, limit: PAGE };
            let page = self.store.tasks(query).await?;
            if page.items.iter().any(wanted) {
                return Ok(());
            }
            after = page.next;
            if after.is_none() {
                return Err(none(plan, otherwise));
            }
        }
    }

    async fn change_plan(
        self: &Arc<Self>,
        plan: &PlanId,
        command: PlanCommand,
        by: &By,
        expected: Option<u64>,
    ) -> Result<(), VerbError> {
        loop {
            // For the version that was looked at: what a network repeats after the answer finds another, or is answered alike.
            let version = match expected {
                Some(version) => version,
                None => self.plan_row(plan).await?.version,
            };
            let (by, now) = (by.clone(), self.clock.now());
            let change = PlanChange { plan: plan.clone(), command, by, expected: Some(version), now };
            match self.store.change_plan(change).await {
                // Somebody else was faster, and whoever asks does so of the plan as it is.
                Err(StoreError::PlanConflict { .. }) if expected.is_none() => {}
                changed => {
                    self.feed.plan_changed(plan, changed?.status);
                    return Ok(());
                }
            }
        }
    }

    /// Cancels whatever of the plan has not ended.
    pub(crate) async fn cancel_tasks(self: &Arc<Self>, plan: &PlanId, by: &By) -> Result<Changed, VerbError> {
        use TaskStatus::{Paused, Pending, Running};
        let command = Command::Cancel(by.clone());
        self.for_each(plan, &[Pending, Running, Paused], any, command, None).await
    }

    /// Asks the running tasks of a plan that was paused to pause at their stage boundary.
    pub(crate) async fn pause_running(self: &Arc<Self>, plan: &PlanId) {
        let by = By::new("on_task_failure: pause");
        let paused = self.for_each(plan, &[TaskStatus::Running], any, Command::Pause(by.clone()), None).await;
        if let Err(error) = paused {
            tracing::error!(%plan, %error, "some tasks of the paused plan could not be paused");
        }
    }

    /// Tasks as they are now; none for those in hand, which their runners know better.
    async fn look_at(self: &Arc<Self>, ids: impl Iterator<Item = TaskId>) -> Vec<(TaskId, Option<StoredTask>)> {
        let looks = ids.map(|id| async move {
            let seen = match self.runner(&id) {
                Some(_) => None,
                // Whatever is wrong with it shows again when the command is given.
                None => self.store.task(&id).await.ok().flatten(),
            };
            (id, seen)
        });
        futures::future::join_all(looks).await
    }

    /// Gives a command to every task of the plan in one of these states. Tasks that refuse it are passed over: they
    /// moved on in the meantime, or it is not for them. Those that a person has to do something else about are answered.
    /// One that cannot be changed keeps no other from it.
    async fn for_each(
        self: &Arc<Self>,
        plan: &PlanId,
        statuses: &[TaskStatus],
        wanted: fn(&TaskRow) -> bool,
        command: Command,
        plan_command: Option<PlanCommand>,
    ) -> Result<Changed, VerbError> {
        let (mut changed, mut failed) = (Changed::default(), None);
        let mut after = None;
        loop {
            let query = TaskQuery { of: TasksOf::Plan(plan.clone()), statuses: statuses.to_vec(), after, limit: PAGE };
            let page = self.store.tasks(query).await?;
            // Read first and write after: commits that trickle in behind reads would each pay for a sync of their own.
            let ids = page.items.into_iter().filter(wanted).map(|row| row.key.id);
            let mut work = Vec::new();
            for (id, seen) in self.look_at(ids).await {
                let inner = self.clone();
                let asked = Asked { command: command.clone(), plan: plan_command, expected: None };
                work.push(async move {
                    let outcome = match inner.command(&id, asked, seen).await {
                        // Of many it is not asked which of them had come so far.
                        Err(VerbError::InDoubt(Some(refusal))) => Err(*refusal),
                        outcome => outcome,
                    };
                    (id, outcome)
                });
            }
            let mut work = futures::stream::iter(work).buffer_unordered(AT_ONCE);
            while let Some((task_id, outcome)) = work.next().await {
                match outcome {
                    Ok(_) => changed.tasks += 1,
                    Err(VerbError::Rejected(rejection)) if asks_for_more(&rejection) => {
                        changed.left.push(LeftTask { task_id, reason: rejection.to_string() });
                    }
                    Err(VerbError::Rejected(_) | VerbError::NotFound { .. }) => {}
                    Err(VerbError::Plan(rejection)) => {
                        changed.left.push(LeftTask { task_id, reason: rejection.to_string() });
                        changed.refused = Some(rejection);
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            // A plan that was changed by somebody in the middle refuses the rest as well.
            after = page.next.filter(|_| changed.refused.is_none());
            if after.is_none() {
                changed.left.sort_by(|a, b| a.task_id.as_str().cmp(b.task_id.as_str()));
                return failed.map_or(Ok(changed), Err);
            }
        }
    }
}

impl Changed {
    /// Nothing was changed, and the plan or the tasks say why.
    fn unless_all_left(mut self) -> Result<Self, VerbError> {
        if let Some(rejection) = self.refused.take().filter(|_| self.tasks == 0) {
            return Err(rejection.into());
        }
        let Some(first) = self.left.first().filter(|_| self.tasks == 0) else { return Ok(self) };
        let others = match self.left.len() - 1 {
            0 => String::new(),
            1 => "; and one more like it".to_owned(),
            more => format!("; and {more} more like it"),
        };
        Err(VerbError::Refused(format!("{}{others}", first.reason)))
    }
}

/// The task is one that the verb is for, but not before a person has done something else about it.
fn asks_for_more(rejection: &Rejection) -> bool {
    match rejection {
        Rejection::Damaged { .. } | Rejection::PartlyLost { .. } | Rejection::InvalidCheckpoint { .. } => true,
        Rejection::Status { .. }
        | Rejection::Stale { .. }
        | Rejection::NothingToRollBack { .. }
        | Rejection::NotAWorkflow { .. }
        | Rejection::KeyReused { .. } => false,
    }
}

/// A person wants the task to go on.
fn wakes(command: &Command) -> bool {
    matches!(command, Command::Resume(_) | Command::Retry { .. } | Command::Rollback(_))
}

/// A person who looked at another version hears that first; only the commit that follows can be sure.
fn is_expected(row: &PlanRow, expected: Option<u64>) -> Result<(), VerbError> {
    match expected.filter(|expected| *expected != row.version) {
        Some(expected) => Err(VerbError::Version { what: format!("plan {}", row.id), expected, found: row.version }),
        None => Ok(()),
    }
}

fn some(plan: &PlanId, changed: Changed, otherwise: &str) -> Result<Changed, VerbError> {
    let changed = changed.unless_all_left()?;
    if changed.tasks > 0 { Ok(changed) } else { Err(none(plan, otherwise)) }
}

fn none(plan: &PlanId, otherwise: &str) -> VerbError {
    VerbError::Refused(format!("plan {plan} {otherwise}"))
}

fn any(_: &TaskRow) -> bool {
    true
}
