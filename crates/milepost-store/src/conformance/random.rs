//! Random histories: whatever happens, the invariants hold, and the backend answers as the memory store does.
//!
//! A failing history names its seed; the same seed tells the same story again.

mod books;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{Plan, PlanCommand, Recovery};
use milepost_core::task::{Command, PlanStatus, StageResult, Task, TaskStatus, decide};
use milepost_core::time::{Millis, Timestamp};
use serde_json::Map;

use crate::books::Entry;
use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::model::{
    Change, Changed, ClaimRequest, Claimed, Commit, EventQuery, Holder, LeaseChange, PlanChange, PlanQuery, PlanRow,
    Position, REQUESTS_KEPT_FOR, RequestKey, Resubmit, Start, StoredTask, Submission, TaskQuery, TaskRow, TasksOf,
    Wake,
};
use crate::store::Store;

use super::Harness;
use super::given::{PlanBuilder, ann, ended, everything_after, plan, plan_id, running_stage, stage, task_id};

const STEPS: usize = 70;
const PLANS: u64 = 4;

pub(super) async fn any_history_keeps_the_invariants_and_matches_the_memory_store(harness: &dyn Harness) {
    // One seed alone tells its story again: MILEPOST_TEST_SEED=97 cargo test -p milepost-store any_history
    let only = std::env::var("MILEPOST_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(1..=harness.seeds(), |seed| seed..=seed) {
        let mut story = Story::new(harness, seed).await;
        for _ in 0..STEPS {
            story.step().await;
            story.check().await;
        }
        story.check_whole_log().await;
        story.check_books().await;
    }
}

/// Xorshift: enough of a die for tests, and the same one everywhere.
struct Die(u64);

impl Die {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize) }
    }
}

/// A task that the node has, as each of the two stores knows it.
#[derive(Clone)]
struct HeldTask {
    model: StoredTask,
    subject: StoredTask,
}

struct Story<'a> {
    harness: &'a dyn Harness,
    model: MemoryStore,
    subject: Arc<dyn Store>,
    die: Die,
    now: Timestamp,
    plans: BTreeMap<String, PlanBuilder>,
    held: Vec<HeldTask>,
    /// Held once, by an owner that is gone or under a lease that was given back.
    lost: Vec<HeldTask>,
    /// What was sent under a key, to be sent again.
    requests: Vec<Submission>,
    /// How far each store's changes have been followed.
    followed: Followed,
    /// How many tasks of each plan had started and not ended when it was last looked at.
    active: BTreeMap<PlanId, u32>,
    /// What the node does with plans that do not say.
    recovery: Recovery,
    added: u64,
    told: Told,
}

#[derive(Clone, Copy, Default)]
struct Followed {
    model: Position,
    subject: Position,
}

/// What happened so far, told when a check fails.
struct Told {
    seed: u64,
    steps: Vec<String>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, after:\n  {}", self.seed, self.steps.join("\n  "));
        }
    }
}

impl<'a> Story<'a> {
    async fn new(harness: &'a dyn Harness, seed: u64) -> Self {
        Self {
            harness,
            model: MemoryStore::new(),
            subject: harness.open().await,
            die: Die(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: Timestamp::from_millis(1_764_000_000_000),
            plans: BTreeMap::new(),
            held: Vec::new(),
            lost: Vec::new(),
            requests: Vec::new(),
            followed: Followed::default(),
            active: BTreeMap::new(),
            recovery: Recovery::Auto,
            added: 0,
            told: Told { seed, steps: Vec::new() },
        }
    }

    async fn step(&mut self) {
        match self.die.below(26) {
            0..=1 => self.submit().await,
            2 => self.submit_again().await,
            3..=6 => self.claim().await,
            7..=12 => self.commit().await,
            13..=15 => self.operator().await,
            16 => self.verb().await,
            17 => self.late_commit().await,
            18 => self.crash().await,
            19 => self.now = self.now + Millis::new(self.die.below(1500)),
            20 => self.request_again().await,
            21 => self.expecting_verb().await,
            22..=24 => self.message().await,
            25 => self.change_books().await,
            _ => unreachable!("the die has twenty-six sides"),
        }
        self.now = self.now + Millis::new(self.die.below(3));
    }

    /// By the clock of whoever decides, which may be behind that of whoever decided last.
    fn now_or_behind(&mut self) -> Timestamp {
        if self.die.one_in(8) { self.now - Millis::new(self.die.below(1500)) } else { self.now }
    }

    fn tell(&mut self, step: impl Into<String>) {
        self.told.steps.push(step.into());
    }

    // --- what can happen ---

    async fn submit(&mut self) {
        let number = self.plans.len() as u64;
        if number == PLANS {
            return;
        }
        let id = format!("p{number}");
        let mut builder = plan(&id).max(1 + self.die.below(3) as u32);
        builder = match self.die.below(4) {
            0 => builder.manual(),
            1 => builder.automatic(),
            _ => builder,
        };
        if self.die.one_in(4) {
            builder = builder.refuses_busy_tenants();
        }
        if self.die.one_in(3) {
            builder = builder.rolls_back();
        }
        if self.die.one_in(3) {
            builder = builder.by_message();
        }
        if self.die.one_in(4) {
            builder = builder.pauses_on_failure();
        }
        builder = match self.die.below(5) {
            0 => builder.stages(vec![stage("left", &[]), stage("right", &[]), stage("both", &[0, 1])]),
            1 => builder.stages(vec![]),
            _ => builder,
        };
        for _ in 0..=self.die.below(4) {
            builder = self.with_another_task(builder);
        }
        let start = if self.die.one_in(3) { Start::Later } else { Start::AtOnce };
        if self.submit_both(builder.clone(), start, Resubmit::Same).await {
            self.plans.insert(id, builder);
        }
    }

    fn with_another_task(&mut self, builder: PlanBuilder) -> PlanBuilder {
        self.added += 1;
        let (id, priority, of) = (format!("t{}", self.added), self.die.below(3) as i32, self.die.below(5));
        builder.task_with(&id, |task| {
            task.priority = priority;
            task.tenant = (of < 3).then(|| super::given::tenant(&format!("tenant-{of}")));
        })
    }

    async fn submit_again(&mut self) {
        let ids: Vec<String> = self.plans.keys().cloned().collect();
        let Some(id) = self.die.pick(&ids).cloned() else { return };
        let mut builder = self.plans[&id].clone();
        if self.die.one_in(2) {
            self.submit_both(builder, Start::AtOnce, Resubmit::Same).await;
            return;
        }
        if self.die.one_in(2) {
            let gone = self.die.below(builder.0.tasks.len() as u64) as usize;
            builder.0.tasks.remove(gone);
        }
        builder = self.with_another_task(builder);
        if self.die.one_in(3) {
            builder = builder.max(1 + self.die.below(3) as u32);
        }
        let start = if self.die.one_in(2) { Start::Later } else { Start::AtOnce };
        if self.submit_both(builder.clone(), start, Resubmit::Update).await {
            self.plans.insert(id, builder);
        }
    }

    async fn submit_both(&mut self, builder: PlanBuilder, start: Start, resubmit: Resubmit) -> bool {
        let tasks: Vec<&str> = builder.0.tasks.iter().map(|task| task.id.as_str()).collect();
        let story = format!("submit {} {start:?} {resubmit:?} {tasks:?}", builder.0.definition.id);
        self.tell(story);
        let request = self.die.one_in(2).then(|| {
            let number = self.requests.len() as u8;
            RequestKey { key: format!("request-{number}"), digest: [number; 32] }
        });
        let entries = self.entries_of_a_submission();
        let submission = Submission { plan: Arc::new(builder.0), start, resubmit, request, entries, now: self.now };
        if submission.request.is_some() {
            self.requests.push(submission.clone());
        }
        self.send_both(submission).await
    }

    async fn send_both(&mut self, submission: Submission) -> bool {
        let model = self.model.submit(submission.clone()).await;
        let subject = self.subject.submit(submission).await;
        let accepted = model.is_ok();
        same(model, subject, |submitted| {
            (submitted.created, submitted.replayed, submitted.difference, without_version(submitted.plan))
        });
        accepted
    }

    /// A client that has not heard, or one that mistakes a key; now and then a day later, when keys are forgotten.
    async fn request_again(&mut self) {
        let Some(sent) = self.die.pick(&self.requests).cloned() else { return };
        let mut request = sent.request.expect("only those with a key are sent again");
        if self.die.one_in(4) {
            request.digest[0] ^= 1;
        }
        if self.die.one_in(8) {
            self.now = self.now + REQUESTS_KEPT_FOR;
        }
        self.tell(format!("{} sent again: {} {:?}", self.now, request.key, sent.plan.definition.id));
        // What it has for the books is written anew, as whoever takes it in does it.
        let entries = sent.entries.iter().map(|entry| Entry { at: self.now, ..entry.clone() }).collect();
        let again = Submission { request: Some(request), resubmit: Resubmit::Same, now: self.now, entries, ..sent };
        let id = again.plan.definition.id.to_string();
        let builder = PlanBuilder(Plan::clone(&again.plan));
        if self.send_both(again).await {
            // It may have been refused before and be taken in now.
            self.plans.entry(id).or_insert(builder);
        }
    }

    async fn claim(&mut self) {
        let only = if self.die.one_in(3) { Some(format!("p{}", self.die.below(PLANS))) } else { None };
        let limit = if self.die.one_in(2) { 1 + self.die.below(3) as usize } else { 100 };
        self.tell(format!("claim {limit} of {only:?}"));
        let node = format!("node-{}", self.die.below(3));
        let request = ClaimRequest {
            node: node.into(),
            only: only.as_deref().map(plan_id),
            plans: true,
            workflows: Arc::default(),
            recovery: self.recovery,
            limit,
            now: Some(self.now),
        };
        let (model, subject) = (self.model.claim(request.clone()).await, self.subject.claim(request).await);
        let (model, subject) = match (model, subject) {
            (Ok(model), Ok(subject)) => (model, subject),
            (model, subject) => return same(model, subject, |_| ()),
        };
        assert_eq!(claimed(&model), claimed(&subject));
        assert_eq!(model.settled, subject.settled);
        // A claim that was cut short has to be made again before anybody waits.
        if model.tasks.len() + model.ended.len() < limit {
            assert_eq!(model.next_due, subject.next_due);
        }
        for (model, subject) in model.tasks.into_iter().zip(subject.tasks) {
            assert!(model.epoch > 0 && subject.epoch > 0);
            self.held.retain(|held| held.model.key.id != model.key.id);
            self.held.push(HeldTask { model, subject });
        }
    }

    /// The node that holds a task reports, obeys, goes to sleep or stops.
    async fn commit(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.die.below(self.held.len() as u64) as usize;
        let held = self.held[index].clone();
        let now = self.now_or_behind();
        let task = &held.model.task;
        let (command, mut lease) = match (self.die.below(12), running_stage(task)) {
            (0, _) => (Command::Pause(ann()), LeaseChange::Keep),
            (1, _) => (Command::Resume(ann()), LeaseChange::Keep),
            (2, _) => (Command::Cancel(ann()), LeaseChange::Keep),
            (3, _) => {
                let stop = Command::Interrupt { reason: "the node was stopped".to_owned() };
                (stop, LeaseChange::Release(Wake::Recovery))
            }
            (_, None) => (Command::Wake, LeaseChange::Keep),
            (_, Some((stage, attempt))) => (ended(stage, attempt, self.result()), LeaseChange::Keep),
        };
        let Ok(decision) = decide(task, command.clone(), now) else { return };
        if running_stage(&decision.task).is_none()
            && lease == LeaseChange::Keep
            && let Some(due) = decision.task.next_due().filter(|_| self.die.one_in(2))
        {
            lease = LeaseChange::Release(Wake::At(due));
        }
        self.tell(format!("{now} of {}: {command:?}, {lease:?}", held.model.key.id));
        let commit = Commit {
            key: held.model.key.clone(),
            holder: Holder::Lease(held.model.epoch),
            expected: task.version(),
            events: decision.events.into(),
            task: decision.task.clone().into(),
            lease,
            plan: None,
            output: Vec::new(),
        };
        self.commit_both(commit, &held.subject, Holder::Lease(held.subject.epoch)).await;
        let held = &mut self.held[index];
        held.model.task = decision.task.clone();
        held.subject.task = decision.task;
        if !held.model.task.status().is_active() || lease != LeaseChange::Keep {
            let gone = self.held.remove(index);
            self.lost.push(gone);
        }
    }

    fn result(&mut self) -> StageResult {
        match self.die.below(6) {
            0 => StageResult::Failure(Failure::fatal(ErrorType::Business, "out of stock")),
            1..=2 => StageResult::Failure(Failure::retryable(ErrorType::Network, "no answer")),
            3 => StageResult::Skip("nothing to do".to_owned()),
            _ => StageResult::Success(Map::new()),
        }
    }

    async fn commit_both(&self, commit: Commit, subject: &StoredTask, holder: Holder) {
        let twin = Commit { key: subject.key.clone(), holder, ..commit.clone() };
        let (model, subject) = (self.model.commit(commit).await, self.subject.commit(twin).await);
        same(model, subject, |committed| committed.plan);
    }

    async fn operator(&mut self) {
        if self.added == 0 {
            return;
        }
        let id = task_id(&format!("t{}", 1 + self.die.below(self.added)));
        let Some(model) = self.model.task(&id).await.unwrap() else { return };
        let subject = self.subject.task(&id).await.unwrap().expect("both have it");
        let ready = self.plan(model.task.spec().plan.as_str()).await.status == PlanStatus::Ready;
        let (command, plan) = match self.die.below(7) {
            0 => (Command::Pause(ann()), None),
            6 => (Command::LetGo(ann()), None),
            1 => (Command::Resume(ann()), None),
            // A READY plan of which nothing is left is a question that the core leaves open.
            2 if !ready => (Command::Cancel(ann()), None),
            2..=3 => (Command::Rollback(ann()), None),
            4 => (Command::Retry { by: ann(), from_checkpoint: true }, Some(PlanCommand::Retry)),
            _ => (Command::Retry { by: ann(), from_checkpoint: false }, Some(PlanCommand::Reset)),
        };
        let now = self.now_or_behind();
        let told = format!("{now} operator of {id}: {command:?}");
        let mut events = Vec::new();
        let mut task = model.task.clone();
        if model.orphaned {
            let lost = Command::Interrupt { reason: "its node is gone".to_owned() };
            let decision = decide(&task, lost, now).expect("an orphan can be interrupted");
            events.extend(decision.events);
            task = decision.task;
        }
        let Ok(decision) = decide(&task, command, now) else { return };
        events.extend(decision.events);
        self.tell(told);
        let commit = Commit {
            key: model.key.clone(),
            holder: Holder::Operator,
            expected: model.task.version(),
            events: events.into(),
            task: decision.task.into(),
            lease: LeaseChange::Keep,
            plan,
            output: Vec::new(),
        };
        self.commit_both(commit, &subject, Holder::Operator).await;
    }

    async fn verb(&mut self) {
        let ids: Vec<String> = self.plans.keys().cloned().collect();
        let Some(id) = self.die.pick(&ids).cloned() else { return };
        let verbs = [
            PlanCommand::Start,
            PlanCommand::Pause,
            PlanCommand::Resume,
            PlanCommand::Resume,
            PlanCommand::Cancel,
            PlanCommand::RetryTasks,
            PlanCommand::ChangeTasks,
        ];
        let command = verbs[self.die.below(verbs.len() as u64) as usize];
        self.tell(format!("{command:?} {id}"));
        let change = PlanChange { plan: plan_id(&id), command, by: ann(), expected: None, now: self.now };
        let (model, subject) = (self.model.change_plan(change.clone()).await, self.subject.change_plan(change).await);
        same(model, subject, without_version);
    }

    /// By somebody who has seen the plan as it is, or as it was.
    async fn expecting_verb(&mut self) {
        let ids: Vec<String> = self.plans.keys().cloned().collect();
        let Some(id) = self.die.pick(&ids).map(|id| plan_id(id)) else { return };
        let command = [PlanCommand::Start, PlanCommand::Pause, PlanCommand::Resume][self.die.below(3) as usize];
        let too_old = u64::from(self.die.one_in(2));
        self.tell(format!("{command:?} {id}, {too_old} behind"));
        let (model, subject) = (self.model.plan(&id).await.unwrap(), self.subject.plan(&id).await.unwrap());
        let change = |seen: Option<PlanRow>| {
            let expected = seen.map(|row| row.version - too_old);
            PlanChange { plan: id.clone(), command, by: ann(), expected, now: self.now }
        };
        let (model, subject) = (change(model), change(subject));
        let (model, subject) = (self.model.change_plan(model).await, self.subject.change_plan(subject).await);
        assert_eq!(matches!(model, Err(StoreError::PlanConflict { .. })), too_old == 1);
        same(model, subject, without_version);
    }

    /// A node that has not noticed yet.
    async fn late_commit(&mut self) {
        let Some(lost) = self.die.pick(&self.lost).cloned() else { return };
        let Ok(decision) = decide(&lost.model.task, Command::Cancel(ann()), self.now) else { return };
        self.tell(format!("late commit of {}", lost.model.key.id));
        let commit = Commit {
            key: lost.model.key.clone(),
            holder: Holder::Lease(lost.model.epoch),
            expected: lost.model.task.version(),
            events: decision.events.into(),
            task: decision.task.into(),
            lease: LeaseChange::Keep,
            plan: None,
            output: Vec::new(),
        };
        let twin = Commit { key: lost.subject.key, holder: Holder::Lease(lost.subject.epoch), ..commit.clone() };
        let (model, subject) = (self.model.commit(commit).await, self.subject.commit(twin).await);
        assert!(model.is_err(), "a late commit was taken");
        same(model, subject, |committed| committed.plan);
    }

    async fn crash(&mut self) {
        self.recovery = if self.die.one_in(2) { Recovery::Auto } else { Recovery::Manual };
        self.tell(format!("crash, and then {:?}", self.recovery));
        self.model = self.model.reopen();
        self.subject = self.harness.reopen().await;
        self.lost.append(&mut self.held);
    }

    // --- what must hold ---

    async fn check(&mut self) {
        self.follow().await;
        let plans = self.subject.plans(PlanQuery { open_only: false, after: None, limit: 100 }).await.unwrap().items;
        assert_eq!(plans.len(), self.plans.len());
        let model = self.model.plans(PlanQuery { open_only: false, after: None, limit: 100 }).await.unwrap().items;
        for (plan, model) in plans.into_iter().zip(model) {
            check_plan(&plan);
            let rows = rows_of(&*self.subject, &plan).await;
            assert_eq!(rows, rows_of(&self.model, &plan).await);
            let mut active = 0;
            for row in rows {
                let id = row.key.id;
                let stored = self.subject.task(&id).await.unwrap().expect("it is in the list");
                self.check_task(&id, &stored).await;
                let started = stored.epoch > 0 || stored.task.status() == TaskStatus::Running;
                active += u32::from(stored.task.status().is_active() && started);
            }
            // An update may leave it with fewer slots than are taken: then no more are, until there is room.
            let before = self.active.insert(plan.id.clone(), active).unwrap_or(0);
            assert!(active <= plan.max_concurrency.max(before), "{active} tasks of plan {} are active", plan.id);
            assert_eq!(without_version(plan), without_version(model));
        }
        let locks = |store: Vec<crate::model::LockRow>| -> Vec<_> {
            store.into_iter().map(|lock| (lock.tenant, lock.plan, lock.task, lock.since)).collect()
        };
        let mut subject = locks(self.subject.locks().await.unwrap());
        subject.sort();
        assert_eq!(subject, locks(self.model.locks().await.unwrap()));
    }

    /// What both say has changed since the last look; positions are each store's own.
    async fn follow(&mut self) {
        let model = everything_after(&self.model, self.followed.model, None, 5).await;
        let subject = everything_after(&*self.subject, self.followed.subject, None, 7).await;
        assert_eq!(without_positions(model.items), without_positions(subject.items));
        assert_eq!(subject.upto, self.subject.newest().await.unwrap());
        self.followed = Followed { model: model.upto, subject: subject.upto };
    }

    /// From the beginning, and plan by plan: each is a part of the whole.
    async fn check_whole_log(&self) {
        let start = Position(0);
        let model = everything_after(&self.model, start, None, 1000).await.items;
        let whole = everything_after(&*self.subject, start, None, 1000).await.items;
        for id in self.plans.keys().map(|id| plan_id(id)) {
            let own: Vec<Change> = whole.iter().filter(|change| change.plan == id).cloned().collect();
            assert_eq!(everything_after(&*self.subject, start, Some(id), 1000).await.items, own);
        }
        assert_eq!(without_positions(model), without_positions(whole));
    }

    async fn check_task(&self, id: &TaskId, stored: &StoredTask) {
        let query = EventQuery { task: id.clone(), after: 0, limit: 10_000 };
        let events = self.subject.events(query.clone()).await.unwrap();
        assert_eq!(events, self.model.events(query).await.unwrap());
        assert_eq!(events.len() as u64, stored.task.version(), "the version of {id}");
        assert!(events.iter().zip(1..).all(|(event, sequence)| event.sequence == sequence));
        assert!(events.is_sorted_by_key(|event| event.record.at()), "times in the log of {id} go back: {events:?}");
        let created = Task::created(stored.task.spec().clone());
        let folded = events.iter().skip(1).try_fold(created, |task, event| task.apply(&event.record));
        assert_eq!(folded.as_ref(), Ok(&stored.task), "the log of {id}");

        let model = self.model.task(id).await.unwrap().expect("both have it");
        assert_eq!(model.task, stored.task);
        assert_eq!((model.orphaned, model.epoch > 0), (stored.orphaned, stored.epoch > 0), "who has {id}");
        assert_eq!(model.blocked_by, stored.blocked_by);
        assert_eq!(model.waits_for_person, stored.waits_for_person, "whether {id} waits for a person");

        let holds = stored.epoch > 0 || stored.task.status() == TaskStatus::Running;
        if let Some(tenant) = stored.task.spec().tenant.as_ref().filter(|_| holds) {
            let locks = self.subject.locks().await.unwrap();
            let holder = locks.iter().find(|lock| lock.tenant == *tenant).map(|lock| &lock.task);
            assert_eq!(holder, Some(id), "who has {tenant}");
        }
    }

    async fn plan(&self, id: &str) -> PlanRow {
        self.model.plan(&plan_id(id)).await.unwrap().expect("it was submitted")
    }
}

fn check_plan(plan: &PlanRow) {
    let counts = &plan.counts;
    let holds = match plan.status {
        PlanStatus::Created | PlanStatus::Ready | PlanStatus::Cancelled => true,
        PlanStatus::Running | PlanStatus::Paused => counts.open() > 0,
        PlanStatus::Completed => counts.completed == counts.total,
        // Only undoing goes on in a plan that has failed.
        PlanStatus::Failed => counts.open() == counts.rolling_back && counts.completed < counts.total,
    };
    assert!(holds, "{plan:?}");
    // Cancelled while a task was being undone, it goes on until that is over; undone after its end, it stays ended.
    if plan.status == PlanStatus::Cancelled && counts.open() == counts.rolling_back && counts.open() > 0 {
        return;
    }
    let over = plan.status.is_ended() && (counts.open() == 0 || plan.status == PlanStatus::Failed);
    assert_eq!(plan.ended_at.is_some(), over, "{plan:?}");
}

async fn rows_of(store: &dyn Store, plan: &PlanRow) -> Vec<TaskRow> {
    let query = TaskQuery { of: TasksOf::Plan(plan.id.clone()), statuses: vec![], after: None, limit: 1000 };
    let mut rows = store.tasks(query).await.unwrap().items;
    for row in &mut rows {
        row.key.no = 0;
    }
    rows
}

fn claimed(claimed: &Claimed) -> Vec<(&TaskId, &Task, &Vec<milepost_core::task::Record>)> {
    claimed
        .tasks
        .iter()
        .chain(&claimed.ended)
        .map(|stored| (&stored.key.id, &stored.task, &stored.claim_events))
        .collect()
}

/// How a version is counted is a backend's own affair; that it grows is not.
fn without_version(row: PlanRow) -> PlanRow {
    PlanRow { version: 0, ..row }
}

fn without_positions(changes: Vec<Change>) -> Vec<(PlanId, Changed)> {
    changes.into_iter().map(|change| (change.plan, change.what)).collect()
}

/// The same answer, or the same kind of refusal.
fn same<T, U: PartialEq + Debug>(
    model: Result<T, StoreError>,
    subject: Result<T, StoreError>,
    answer: impl Fn(T) -> U,
) {
    let (model, subject) = (model.map(&answer).map_err(kind), subject.map(&answer).map_err(kind));
    assert_eq!(model, subject);
}

fn kind(error: StoreError) -> String {
    match error {
        StoreError::Conflict { task, expected, found } => format!("conflict of {task}: {found}, not {expected}"),
        StoreError::Fenced { task, .. } => format!("{task} is fenced"),
        StoreError::Clash(clash) => format!("{clash:?}"),
        StoreError::PlanConflict { plan, .. } => format!("{plan} is at another version"),
        StoreError::NotFound { .. }
        | StoreError::KeyReused { .. }
        | StoreError::Kept { .. }
        | StoreError::Plan(_)
        | StoreError::Task(_) => error.to_string(),
        StoreError::Damaged { .. }
        | StoreError::Format { .. }
        | StoreError::Owned { .. }
        | StoreError::Unavailable { .. } => panic!("{error}: {error:?}"),
    }
}
