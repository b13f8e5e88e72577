//! Why a task is not running: read off what is stored, in words and in data. Changes nothing and decides nothing.

use milepost_core::api::{Explanation, Reason};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Recovery;
use milepost_core::task::{By, Command, Event, PlanStatus, Record, StageStatus, StepKind, Task, TaskStatus, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    EventQuery, LockRow, PlanQuery, PlanRow, Store, StoreError, StoredTask, TaskQuery, TaskRow, TasksOf,
};
use serde_json::{Map, Value};

/// A page of a log or a list.
const PAGE: usize = 1000;
/// So many tasks that are in the way are named.
const NAMED: usize = 3;

/// Says why the task is not running, or that it is. None: there is no such task. `recovery` is what nodes here do with plans
/// that do not say.
pub async fn explain(
    store: &dyn Store,
    task: &TaskId,
    now: Timestamp,
    recovery: Recovery,
) -> Result<Option<Explanation>, StoreError> {
    let stored = match store.task(task).await {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(None),
        Err(StoreError::Damaged { what, detail }) => {
            return damaged_row(store, task, &format!("{what} is damaged: {detail}")).await.map(Some);
        }
        Err(error) => return Err(error),
    };
    let plan = store.plan(&stored.task.spec().plan).await?;
    let missing = || StoreError::NotFound { what: "plan", id: stored.task.spec().plan.to_string() };
    let plan = plan.ok_or_else(missing)?;
    let case = Case { store, stored: &stored, plan: &plan, now, recovery };
    let why = case.why().await?;
    Ok(Some(why.of(task, &plan.id, stored.task.status())))
}

/// One task under one roof with all that bears on it.
struct Case<'a> {
    store: &'a dyn Store,
    stored: &'a StoredTask,
    plan: &'a PlanRow,
    now: Timestamp,
    recovery: Recovery,
}

/// An answer in the making.
struct Why {
    reason: Reason,
    message: String,
    next: Option<String>,
    data: Map<String, Value>,
}

impl Why {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), next: None, data: Map::new() }
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// What is not known is left out.
    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.data.insert(key.to_owned(), value);
        }
        self
    }

    fn at(self, key: &str, at: impl Into<Option<Timestamp>>) -> Self {
        let at = at.into().map(|at| at.to_string());
        self.with(key, at)
    }

    fn by(self, by: Option<&By>) -> Self {
        let (who, why) = (by.map(|by| by.who.clone()), by.and_then(|by| by.why.clone()));
        self.with("by", who).with("why", why)
    }

    fn of(self, task: &TaskId, plan: &PlanId, status: TaskStatus) -> Explanation {
        Explanation {
            task_id: task.clone(),
            plan_id: plan.clone(),
            status,
            reason: self.reason,
            message: self.message,
            next: self.next,
            data: self.data,
        }
    }
}

impl Case<'_> {
    fn task(&self) -> &Task {
        &self.stored.task
    }

    async fn why(&self) -> Result<Why, StoreError> {
        let status = self.task().status();
        let is_final = matches!(status, TaskStatus::Completed | TaskStatus::Cancelled | TaskStatus::RolledBack);
        if !is_final && let Some(why) = self.damaged() {
            return Ok(why);
        }
        Ok(match status {
            TaskStatus::Completed | TaskStatus::Cancelled | TaskStatus::RolledBack => self.ended(),
            TaskStatus::Failed => self.failed("failed").next(self.after_failure()),
            TaskStatus::RollbackFailed => self.rollback_failed().await?,
            TaskStatus::Paused => self.paused().await?,
            TaskStatus::Pending => self.pending().await?,
            TaskStatus::Running | TaskStatus::RollingBack => self.active().await?,
        })
    }

    fn ended(&self) -> Why {
        let status = self.task().status();
        Why::new(Reason::Ended, format!("it has ended: {status}")).at("endedAt", self.task().ended_at())
    }

    /// What cannot be read, or could not be taken by a claim, waits for a person.
    fn damaged(&self) -> Option<Why> {
        let words = match (self.task().damage(), &self.stored.set_aside) {
            (Some(reason), _) => format!("what is stored of it cannot be read: {reason}; nothing is done with it"),
            (None, Some(reason)) => format!("it was set aside, because it cannot be run: {reason}"),
            (None, None) => return None,
        };
        Some(Why::new(Reason::Damaged, words).next(format!("milepost store repair --task {}", self.task().id())))
    }

    /// What a failed task can do next is what the rules allow it.
    fn after_failure(&self) -> String {
        let (task, by) = (self.task(), By::new("explain"));
        let allows = |command| decide(task, command, self.now).is_ok();
        let id = task.id();
        let retry = match allows(Command::Retry { by: by.clone(), from_checkpoint: true }) {
            true => format!("milepost retry {id}"),
            false if allows(Command::Retry { by: by.clone(), from_checkpoint: false }) => {
                format!("milepost retry {id} --from-start")
            }
            false => return "submit the work as a new task".to_owned(),
        };
        match allows(Command::Rollback(by)) {
            true => format!("{retry}, or milepost rollback {id} to undo it"),
            false => retry,
        }
    }

    fn failed(&self, verb: &str) -> Why {
        let Some(failure) = self.task().failure() else { return Why::new(Reason::Failed, format!("it {verb}")) };
        let stage = failure.stage.as_ref();
        let at = stage.map(|stage| format!(" at stage {stage}")).unwrap_or_default();
        let attempts = failure.attempts.map(|n| format!(" after {}", count(u64::from(n), "attempt")));
        let attempts = attempts.unwrap_or_default();
        let kind = failure.cause.error_type.as_str();
        Why::new(Reason::Failed, format!("it {verb}{at}{attempts}: {kind}: {}", failure.cause.reason))
            .with("stage", stage.map(ToString::to_string))
            .with("attempts", failure.attempts)
            .with("errorType", kind)
            .with("lastError", failure.cause.reason.as_str())
            .at("failedAt", failure.at)
    }

    async fn rollback_failed(&self) -> Result<Why, StoreError> {
        let last = self.last_event(|event| matches!(event, Event::RollbackFailed { .. })).await?;
        let reason = match last.as_ref().map(Record::event) {
            Some(Event::RollbackFailed { reason }) => reason.clone(),
            Some(_) | None => "some stages could not be undone".to_owned(),
        };
        let why = Why::new(Reason::Failed, format!("its rollback failed: {reason}"));
        let why = why.with("lastError", reason).at("failedAt", last.map(|record| record.at()));
        Ok(why.next(format!("milepost rollback {}", self.task().id())))
    }

    async fn paused(&self) -> Result<Why, StoreError> {
        let pause = self.last_event(|event| matches!(event, Event::TaskPaused { .. })).await?;
        let by = match pause.as_ref().map(Record::event) {
            Some(Event::TaskPaused { by }) => by.as_ref(),
            Some(_) | None => None,
        };
        let since = pause.as_ref().map(Record::at);
        let why = Why::new(Reason::Paused, format!("it was paused{}", words(by))).by(by).at("since", since);
        // A task alone cannot go on while its plan is paused.
        let target =
            if self.plan.status == PlanStatus::Paused { self.plan.id.as_str() } else { self.task().id().as_str() };
        Ok(why.next(format!("milepost resume {target}")))
    }

    async fn pending(&self) -> Result<Why, StoreError> {
        if let Some(why) = self.held_up_by_plan() {
            return Ok(why);
        }
        if self.task().awaits_message() {
            let why = Why::new(Reason::AwaitingMessage, "it waits for its message");
            return Ok(why.next(format!("milepost publish {}", self.task().id())));
        }
        if let Some(why) = self.waits_for_person() {
            return Ok(why);
        }
        if let Some(why) = self.held_up_by_others().await? {
            return Ok(why);
        }
        if let Some(why) = self.needs_a_node_that_knows() {
            return Ok(why);
        }
        let words = "its turn is next: it starts as soon as a node that runs this store has room";
        Ok(Why::new(Reason::NodeFull, words))
    }

    /// Tasks of a plan that does not run are not taken on.
    fn held_up_by_plan(&self) -> Option<Why> {
        let (plan, status) = (&self.plan.id, self.plan.status);
        let by = self.plan.changed_by.as_ref();
        match status {
            PlanStatus::Running => None,
            PlanStatus::Created | PlanStatus::Ready => Some(
                Why::new(Reason::PlanNotStarted, format!("its plan {plan} has not been started"))
                    .next(format!("milepost start {plan}")),
            ),
            PlanStatus::Paused => Some(
                Why::new(Reason::PlanPaused, format!("its plan {plan} was paused{}", words(by)))
                    .by(by)
                    .next(format!("milepost resume {plan}")),
            ),
            PlanStatus::Completed | PlanStatus::Failed | PlanStatus::Cancelled => {
                let why = Why::new(Reason::PlanEnded, format!("its plan {plan} has ended: {status}{}", words(by)));
                let why = why.by(by).at("since", self.plan.ended_at);
                Some(if status == PlanStatus::Failed { why.next(format!("milepost retry {plan}")) } else { why })
            }
        }
    }

    /// Its tenant, or a slot.
    async fn held_up_by_others(&self) -> Result<Option<Why>, StoreError> {
        if let Some(lock) = self.lock_of_another().await? {
            let holder = format!("{}:{}", lock.plan, lock.task);
            let words = format!("its tenant {} is held by {holder} {}", lock.tenant, self.since(lock.since));
            let is_damaged = match self.store.task(&lock.task).await {
                Ok(holder) => holder.is_some_and(|holder| holder.task.damage().is_some()),
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => return Err(error),
            };
            let words = if is_damaged { format!("{words}, which is damaged") } else { words };
            let why = Why::new(Reason::TenantLocked, words).with("tenantId", lock.tenant.to_string());
            let why = why.with("heldBy", holder).at("since", lock.since);
            let next = if is_damaged { "store repair --task" } else { "status" };
            return Ok(Some(why.next(format!("milepost {next} {}", lock.task))));
        }
        self.without_slot().await
    }

    /// Its plan has no slot left: who has them, and what can be done about those that nobody works on.
    async fn without_slot(&self) -> Result<Option<Why>, StoreError> {
        let (counts, most) = (&self.plan.counts, u64::from(self.plan.max_concurrency));
        if counts.running + counts.rolling_back < most {
            return Ok(None);
        }
        let statuses = vec![TaskStatus::Running, TaskStatus::RollingBack];
        let mut query = TaskQuery { of: TasksOf::Plan(self.plan.id.clone()), statuses, after: None, limit: PAGE };
        let mut active = Vec::new();
        loop {
            let page = self.store.tasks(query.clone()).await?;
            active.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        // Those that cannot be read have left their slots to others; and it may be being undone, and have none itself.
        let others = active.iter().filter(|row| row.set_aside.is_none() && row.key.id != *self.task().id());
        let (interrupted, running): (Vec<&TaskRow>, Vec<&TaskRow>) = others.partition(|row| row.interrupted);
        let taken = (interrupted.len() + running.len()) as u64;
        if taken < most {
            return Ok(None);
        }
        let why = |words: String| {
            let why = Why::new(Reason::NoSlot, words).with("running", running.len());
            why.with("interrupted", interrupted.len()).with("maxConcurrency", most)
        };
        if interrupted.is_empty() {
            return Ok(Some(why(format!("its plan runs {taken} of at most {most} tasks at once"))));
        }
        let named: Vec<&str> = interrupted.iter().take(NAMED).map(|row| row.key.id.as_str()).collect();
        let more = if interrupted.len() > NAMED { ", …" } else { "" };
        let were = if interrupted.len() == 1 { "1 was" } else { &format!("{} were", interrupted.len()) };
        let words = format!(
            "its plan has at most {most} tasks under way at once; of {taken}, {were} interrupted and nobody runs them: {}{more}",
            named.join(", ")
        );
        Ok(Some(match self.task().spec().settings.recovery_or(self.recovery) {
            Recovery::Manual => why(words).next(format!("milepost resume {}", self.plan.id)),
            Recovery::Auto => why(format!("{words}; a node takes them up by itself")),
        }))
    }

    async fn lock_of_another(&self) -> Result<Option<LockRow>, StoreError> {
        let spec = self.task().spec();
        let Some(tenant) = &spec.tenant else { return Ok(None) };
        let locks = self.store.locks().await?;
        Ok(locks.into_iter().find(|lock| lock.tenant == *tenant && lock.task != spec.id))
    }

    async fn active(&self) -> Result<Why, StoreError> {
        let task = self.task();
        if task.interrupted() || self.stored.orphaned {
            return self.without_node().await;
        }
        if let Some(by) = task.pause_requested() {
            let words = format!("it pauses when its running stage has ended{}", asked(Some(by)));
            let next = format!("milepost resume {} takes the pause back", task.id());
            return Ok(Why::new(Reason::Pausing, words).by(Some(by)).next(next));
        }
        // It gave its lease back to wait, and is not taken up again while its plan does not run.
        if self.stored.epoch == 0
            && task.status() == TaskStatus::Running
            && let Some(why) = self.held_up_by_plan()
        {
            return Ok(why);
        }
        if let Some(why) = self.waits_for_person() {
            return Ok(why);
        }
        if let Some(why) = self.waits_for_retry() {
            return Ok(why);
        }
        if let Some(why) = self.workflow_waits() {
            return Ok(why);
        }
        if self.stored.epoch == 0 {
            return self.unheld().await;
        }
        let stage = task.current_stage().map(|index| task.stage(index));
        let name = stage.map(|(definition, _)| definition.name.to_string());
        let undoing = if task.status() == TaskStatus::RollingBack { "undoes" } else { "runs" };
        let words = match &name {
            Some(name) => format!("it {undoing} stage {name}"),
            None => format!("it {undoing} its stages"),
        };
        Ok(Why::new(Reason::Running, words)
            .with("stage", name)
            .with("attempt", stage.map(|(_, state)| task.undo().map_or(state.attempt, |undo| undo.attempt)))
            .with("node", task.node().map(|node| node.to_string()))
            .at("since", stage.and_then(|(_, state)| state.since)))
    }

    /// A workflow of which nothing runs: what it waits for, and until when.
    fn workflow_waits(&self) -> Option<Why> {
        let task = self.task();
        let flow = task.flow().filter(|_| task.status() == TaskStatus::Running)?;
        let open: Vec<usize> = flow.open().collect();
        let waits = |index: &usize| flow.step(*index).kind.only_waits();
        if open.is_empty() || !open.iter().all(waits) {
            return None;
        }
        // Of several the one that people can do something about says most.
        let rank = |index: &&usize| match flow.step(**index).kind {
            StepKind::Signal { .. } => 0,
            StepKind::Child { .. } => 1,
            StepKind::Sleep { .. } | StepKind::Stage => 2,
        };
        let index = *open.iter().min_by_key(rank)?;
        let (definition, state) = task.stage(index);
        let others = open.len() - 1;
        let more = if others > 0 { format!(", and for {others} more") } else { String::new() };
        let why = match &flow.step(index).kind {
            StepKind::Signal { name, deadline } => {
                let limit = deadline.map(|at| format!(" until {at}")).unwrap_or_default();
                Why::new(Reason::AwaitingSignal, format!("its workflow waits for the signal `{name}`{limit}{more}"))
                    .with("signal", name.to_string())
                    .at("dueAt", *deadline)
                    .next(format!("milepost signal {} {name} [JSON]", task.id()))
            }
            StepKind::Child { task: child } => {
                Why::new(Reason::AwaitingChild, format!("its workflow waits for the workflow {child}{more}"))
                    .with("child", child.to_string())
                    .next(format!("milepost explain {child}"))
            }
            StepKind::Sleep { until } => {
                let words = format!("its workflow sleeps in {}, until {until}{more}", definition.name);
                Why::new(Reason::Sleeping, words).at("dueAt", *until)
            }
            StepKind::Stage => return None,
        };
        Some(why.with("stage", definition.name.to_string()).at("since", state.since))
    }

    /// Only a program that has the function can run it.
    fn needs_a_node_that_knows(&self) -> Option<Why> {
        let workflow = self.task().spec().workflow.as_ref()?;
        let words = format!("it waits for a node that knows the workflow {workflow}");
        let why = Why::new(Reason::NoNodeKnows, words);
        let why = why.with("workflow", workflow.name.to_string()).with("version", workflow.version);
        Some(why.next("start the program that has this workflow, in this version"))
    }

    /// Nobody has it, and nobody lost it either: a rollback that was asked for and has not begun.
    async fn unheld(&self) -> Result<Why, StoreError> {
        if let Some(why) = self.held_up_by_others().await? {
            return Ok(why);
        }
        if let Some(why) = self.needs_a_node_that_knows() {
            return Ok(why);
        }
        Ok(Why::new(Reason::NodeFull, "its turn is next: it goes on as soon as a node that runs this store has room"))
    }

    async fn without_node(&self) -> Result<Why, StoreError> {
        let task = self.task();
        let (node, since, how) = if task.interrupted() {
            match self.last_event(|event| matches!(event, Event::TaskInterrupted { .. })).await? {
                Some(Record(_, Event::TaskInterrupted { node, reason, .. })) => {
                    (Some(node.to_string()), task.updated_at(), reason)
                }
                Some(_) | None => (None, task.updated_at(), "its node went away".to_owned()),
            }
        } else {
            // A node that crashed says nothing: what it last wrote is the last sign of it.
            (task.node().map(|node| node.to_string()), task.updated_at(), "its node went away".to_owned())
        };
        let on = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let interrupted = format!("it was interrupted{on} {}: {how}", self.since(since));
        let manual = self.stored.waits_for_word(self.recovery)
            || task.spec().settings.recovery_or(self.recovery) == Recovery::Manual;
        let verb = if task.status() == TaskStatus::RollingBack { "rollback" } else { "resume" };
        let why = if self.plan.status == PlanStatus::Paused {
            let by = self.plan.changed_by.as_ref();
            let message = format!("{interrupted}; and its plan {} was paused{}", self.plan.id, words(by));
            Why::new(Reason::PlanPaused, message).by(by).next(format!("milepost resume {}", self.plan.id))
        } else if manual {
            let message = format!("{interrupted}; {}, so a person decides", self.says_manual());
            Why::new(Reason::Interrupted, message).next(format!("milepost {verb} {}", task.id()))
        } else {
            Why::new(Reason::NodeGone, format!("{interrupted}; a node takes it up by itself"))
        };
        let recovery = if manual { "manual" } else { "auto" };
        Ok(why.with("node", node).at("since", since).with("recovery", recovery))
    }

    /// All nodes were gone, and nobody has set it going since.
    fn waits_for_person(&self) -> Option<Why> {
        if !self.stored.waits_for_word(self.recovery) {
            return None;
        }
        let (task, plan) = (self.task().id(), &self.plan.id);
        let verb = if self.task().status() == TaskStatus::RollingBack { "rollback" } else { "resume" };
        let message = format!("all nodes were gone, and {}, so a person decides when it goes on", self.says_manual());
        let why = Why::new(Reason::Interrupted, message).with("recovery", "manual");
        // A rollback goes on after the end of its plan, which nothing sets going any more.
        let next = format!("milepost {verb} {task}");
        if self.plan.status.is_ended() {
            return Some(why.next(next));
        }
        Some(why.next(format!("{next}, or milepost resume {plan} for all of its plan")))
    }

    fn says_manual(&self) -> &'static str {
        match self.task().spec().settings.recovery {
            Some(_) => "its plan says `recovery: manual`",
            None => "`recovery` is manual here for plans that do not say",
        }
    }

    fn waits_for_retry(&self) -> Option<Why> {
        let task = self.task();
        let due = task.next_due()?;
        if task.stages().any(|(_, state)| state.status == StageStatus::Running) {
            return None;
        }
        let (definition, state) = match task.undo() {
            Some(undo) => task.stage(*undo.queue.first()?),
            None => task.stages().find(|(_, state)| state.due() == Some(due))?,
        };
        let attempt = task.undo().map_or(state.attempt, |undo| undo.attempt);
        let most = definition.retry.max_attempts;
        let last = state.cause.as_ref();
        let error = last.map(|cause| format!(": {}", cause.reason)).unwrap_or_default();
        let words = format!(
            "stage {} failed and is tried again {}, attempt {attempt} of {most}{error}",
            definition.name,
            self.until(due),
        );
        let why = Why::new(Reason::RetryWait, words)
            .with("stage", definition.name.to_string())
            .at("dueAt", due)
            .with("attempt", attempt)
            .with("maxAttempts", most)
            .with("errorType", last.map(|cause| cause.error_type.as_str()))
            .with("lastError", last.map(|cause| cause.reason.clone()));
        Some(why)
    }

    /// The newest event of its kind.
    async fn last_event(&self, wanted: fn(&Event) -> bool) -> Result<Option<Record>, StoreError> {
        let version = self.task().version();
        // What explains a task's present state is near the end of its log: the last page nearly always has it.
        let mut upto = version;
        while upto > 0 {
            let after = upto.saturating_sub(PAGE as u64);
            let limit = usize::try_from(upto - after).unwrap_or(PAGE);
            let query = EventQuery { task: self.task().id().clone(), after, limit };
            let found = self.store.events(query).await?;
            if let Some(event) = found.into_iter().rev().find(|event| wanted(event.record.event())) {
                return Ok(Some(event.record));
            }
            upto = after;
        }
        Ok(None)
    }

    fn since(&self, at: Timestamp) -> String {
        format!("since {at} ({} ago)", seconds(self.now.since(at)))
    }

    fn until(&self, due: Timestamp) -> String {
        match due.since(self.now) {
            Millis::ZERO => "now".to_owned(),
            left => format!("in {}, at {due}", seconds(left)),
        }
    }
}

/// A task whose log cannot be read still has a row in its plan's list. This looks through all of them, which only a
/// damaged task is worth.
async fn damaged_row(store: &dyn Store, task: &TaskId, detail: &str) -> Result<Explanation, StoreError> {
    let why = Why::new(Reason::Damaged, format!("{detail}; nothing is done with it"));
    let why = why.next("restore the store from a backup, or submit the work as a new task");
    let mut plans = PlanQuery { open_only: false, after: None, limit: PAGE };
    loop {
        let page = store.plans(plans.clone()).await?;
        for plan in &page.items {
            let mut after = None;
            loop {
                let of = TasksOf::Plan(plan.id.clone());
                let tasks = store.tasks(TaskQuery { of, statuses: Vec::new(), after, limit: PAGE }).await?;
                if let Some(row) = tasks.items.iter().find(|row| row.key.id == *task) {
                    return Ok(why.of(task, &plan.id, row.status));
                }
                after = tasks.next;
                if after.is_none() {
                    break;
                }
            }
        }
        plans.after = page.next;
        if plans.after.is_none() {
            return Err(StoreError::Damaged { what: format!("task {task}"), detail: detail.to_owned() });
        }
    }
}

fn words(by: Option<&By>) -> String {
    match by {
        Some(By { who, why: Some(why) }) => format!(" by {who}: {why}"),
        Some(By { who, why: None }) => format!(" by {who}"),
        None => String::new(),
    }
}

fn asked(by: Option<&By>) -> String {
    by.map(|by| format!(", as asked{}", words(Some(by)))).unwrap_or_default()
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Whole seconds, for people; below one, what it is.
fn seconds(length: Millis) -> Millis {
    if length < Millis::from_secs(1) { length } else { Millis::from_secs(length.get() / 1000) }
}
