//! Liveness: once nothing goes wrong any more, every task ends, or waits for something that `explain` names and that is so. What waits
//! for a person since nodes were gone goes on when one says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::api::{Explanation, Reason};
use milepost_core::id::TaskId;
use milepost_core::plan::{Recovery, TaskCounts};
use milepost_core::task::{By, PlanStatus, Task, TaskStatus};
use milepost_engine::{Received, Target, Verb, VerbError, explain};
use milepost_store::{PlanQuery, StoreError};

use crate::shared::Shared;
use crate::world::World;

/// Longer than any wait that a schedule knows.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What is not written in a schedule takes its time however fast that is played.
const REAL_PATIENCE: Duration = Duration::from_secs(150);
/// How often a person sets going what waits for that: a node that was told to stop may end an era once more.
const MOST_WORDS: u32 = 5;

impl World<'_> {
    /// Waits until nothing is left to do, and says who is stuck if that takes too long.
    pub(crate) async fn settle(&mut self) {
        self.revive();
        // What the engine does once a minute it does so on a real server too.
        let (patience, every) = (self.pace(PATIENCE).max(REAL_PATIENCE), self.pace(LOOK_EVERY));
        let (mut seen, mut since, mut words) = (0, self.shared.elapsed(), 0);
        loop {
            tokio::time::sleep(every).await;
            self.shared.look().await;
            if self.shared.violation().is_some() {
                return;
            }
            // A process that was told to stop may be the last of its node.
            self.revive();
            let looked_at = self.shared.state().watch.upto;
            let Some(stuck) = self.shared.unsettled().await else {
                if let Some(wrong) = self.shared.wrong_at_end().await {
                    self.shared.look().await;
                    if self.shared.state().watch.upto == looked_at {
                        return self.shared.violated(wrong);
                    }
                    // Something came in between.
                    continue;
                }
                // What waits for a person since all nodes were gone goes on when one says so.
                let Some(waits) = self.shared.waits_for_a_word().await else { return };
                if words == MOST_WORDS {
                    return self.shared.violated(format!("{waits}, {words} times over (2: liveness)"));
                }
                if self.set_all_going(words + 1).await {
                    words += 1;
                    since = self.shared.elapsed();
                } else if self.shared.elapsed() - since > patience {
                    return self.shared.violated(format!("{waits}, and cannot be set going (2: liveness)"));
                }
                continue;
            };
            let commits = self.shared.state().watch.commits;
            if commits != seen {
                (seen, since) = (commits, self.shared.elapsed());
            } else if self.shared.elapsed() - since > patience {
                return self.shared.violated(stuck);
            }
        }
    }
}

impl World<'_> {
    /// A person sets going what waits for it: whole plans first, and then one task after the other. Whether any was.
    async fn set_all_going(&self, times: u32) -> bool {
        let Some(engine) = self.visitor.engine.get() else { return false };
        let by = By::new(format!("person at the end {times}"));
        let mut targets = Vec::new();
        if times == 1 {
            let query = PlanQuery { open_only: true, after: None, limit: 1000 };
            let plans = self.shared.truth.plans(query).await.map(|page| page.items).unwrap_or_default();
            let waiting = plans.into_iter().filter(|plan| plan.waits_for_person);
            targets.extend(waiting.map(|plan| (Target::Plan(plan.id), Verb::Resume)));
        }
        if targets.is_empty() {
            for id in self.shared.open() {
                let Ok(Some((task, why))) = self.shared.explained(&id).await else { continue };
                let verb = if task.status() == TaskStatus::RollingBack { Verb::Rollback } else { Verb::Resume };
                if why.reason == Reason::Interrupted {
                    targets.push((Target::Task(id), verb));
                }
            }
        }
        let mut any = false;
        for (target, verb) in targets {
            let words = format!("{verb:?} {target:?}");
            let answer = engine.operate(target, verb, by.clone()).await;
            any |= answer.is_ok();
            self.shared.say("person", || format!("{words}: {:?}", answer.map(drop)));
        }
        any
    }
}

impl Shared {
    /// Tasks that have not ended.
    fn open(&self) -> Vec<TaskId> {
        let state = self.state();
        state.watch.tasks().filter(|task| !task.status().is_ended()).map(|task| task.id().clone()).collect()
    }

    /// The first task that waits for a person because its node, or all nodes, were gone.
    async fn waits_for_a_word(&self) -> Option<String> {
        for id in self.open() {
            if let Ok(Some((task, why))) = self.explained(&id).await
                && why.reason == Reason::Interrupted
            {
                return Some(format!("{id} is {} and waits for a person: {}", task.status(), why.message));
            }
        }
        None
    }

    /// The queue was told that it need not keep a message.
    pub(crate) async fn acknowledged(self: &Arc<Self>, task: &TaskId, received: Received) {
        self.look_again().await;
        let known = self.state().watch.messages_taken(task) > 0;
        // An update may have removed it meanwhile.
        let removed = self.state().watch.task(task).is_none();
        let durable = match received {
            Received::Started | Received::Expired | Received::Seen => known || removed,
            // It did not wait for one: its plan was cancelled, say.
            Received::NotWaiting(_) => true,
            Received::Unknown => false,
        };
        if !durable {
            self.violated(format!("the message for {task} is acknowledged as {received:?} and is nowhere (8)"));
        }
    }

    /// The first task that neither has ended nor waits for something that is named.
    async fn unsettled(&self) -> Option<String> {
        for id in self.open() {
            match self.explained(&id).await {
                Err(error) => return Some(format!("{id} cannot be explained: {error} (2: liveness)")),
                // One that an update removed is none any more.
                Ok(None) => {}
                Ok(Some((task, explanation))) => {
                    if !self.is_settled(&task, &explanation, 0).await {
                        let (status, why, message) = (task.status(), explanation.reason, explanation.message);
                        return Some(format!("{id} is {status} and {why:?}: {message} (2: liveness)"));
                    }
                }
            }
        }
        None
    }

    async fn explained(&self, id: &TaskId) -> Result<Option<(Task, Explanation)>, StoreError> {
        let stored = self.truth.task(id).await?;
        let explanation = explain(&*self.truth, id, self.now(), Default::default()).await?;
        Ok(stored.map(|stored| stored.task).zip(explanation))
    }

    /// Whether it waits for a person or a message, directly or behind somebody who does; and what is said of it is so.
    fn is_settled<'a>(&'a self, task: &'a Task, explanation: &'a Explanation, depth: u32) -> BoxFuture<'a, bool> {
        async move {
            let spec = task.spec();
            let plan = self.truth.plan(&spec.plan).await.ok().flatten();
            let plan_is = |status| plan.as_ref().is_some_and(|plan| plan.status == status);
            match explanation.reason {
                Reason::Ended | Reason::Failed => {
                    task.status().is_ended() || task.status() == TaskStatus::RollbackFailed
                }
                Reason::Paused => task.status() == TaskStatus::Paused,
                Reason::PlanPaused => plan_is(PlanStatus::Paused),
                Reason::PlanNotStarted => plan_is(PlanStatus::Ready) || plan_is(PlanStatus::Created),
                Reason::AwaitingMessage => task.awaits_message(),
                Reason::AwaitingSignal => explanation.data.get("dueAt").is_none(),
                Reason::Interrupted => spec.settings.recovery == Some(Recovery::Manual),
                Reason::AwaitingChild => {
                    let child = explanation.data.get("child").and_then(|child| child.as_str());
                    self.all_wait(child.and_then(|child| TaskId::parse(child).ok()), depth).await
                }
                Reason::TenantLocked => {
                    let holder = explanation.data.get("heldBy").and_then(|held| held.as_str()?.split(':').next_back());
                    self.all_wait(holder.and_then(|holder| TaskId::parse(holder).ok()), depth).await
                }
                Reason::NoSlot => {
                    let others: Vec<TaskId> = {
                        let state = self.state();
                        state.watch.taken(&spec.plan).map(|other| other.id().clone()).collect()
                    };
                    self.all_wait(others, depth).await
                }
                _ => false,
            }
        }
        .boxed()
    }

    /// Whether there are any, and each of them is open and waits as it should.
    async fn all_wait(&self, ids: impl IntoIterator<Item = TaskId>, depth: u32) -> bool {
        let mut any = false;
        for id in ids {
            any = true;
            let Ok(Some((task, explanation))) = self.explained(&id).await else { return false };
            if depth == 10 || task.status().is_ended() || !self.is_settled(&task, &explanation, depth + 1).await {
                return false;
            }
        }
        any
    }

    /// A person was told that something was done, or that it was refused. Who asked for what was so already changed
    /// nothing, and is right too.
    pub(crate) async fn answered(self: &Arc<Self>, person: &str, answer: &Result<(), VerbError>, writes: bool) {
        self.look_again().await;
        let wrote = self.state().watch.wrote_for(person);
        match answer {
            Ok(()) if writes && !wrote => {
                self.violated(format!("{person} was told that it is done, and nothing is recorded (durable answers)"));
            }
            Err(VerbError::Rejected(_) | VerbError::Plan(_) | VerbError::Version { .. }) if wrote => {
                self.violated(format!("{person} was refused, and something is recorded all the same (9)"));
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// What is not as it has to be when everything has come to rest.
    async fn wrong_at_end(&self) -> Option<String> {
        let locks = self.truth.locks().await.unwrap_or_default();
        if self.by_log {
            self.forget_removed(&BTreeSet::new()).await;
        }
        let tasks: Vec<Task> = self.state().watch.tasks().cloned().collect();
        for task in &tasks {
            let id = task.id();
            if self.state().watch.messages_taken(id) > 1 {
                return Some(format!("{id} has taken its message in twice (8)"));
            }
            if task.status().is_ended() && locks.iter().any(|lock| lock.task == *id) {
                return Some(format!("{id} has ended and keeps its tenant closed (4)"));
            }
        }
        let query = PlanQuery { open_only: false, after: None, limit: 1000 };
        let plans = match self.truth.plans(query).await {
            Ok(page) => page.items,
            Err(error) => return Some(format!("the plans cannot be read: {error}")),
        };
        for plan in plans {
            let mut counts = TaskCounts::default();
            tasks.iter().filter(|task| task.spec().plan == plan.id).for_each(|task| counts.add(task.status(), 1));
            if counts != plan.counts {
                return Some(format!("plan {} counts its tasks as {:?}; they are {counts:?}", plan.id, plan.counts));
            }
            let all_ended =
                tasks.iter().filter(|task| task.spec().plan == plan.id).all(|task| task.status().is_ended());
            if all_ended && matches!(plan.status, PlanStatus::Running | PlanStatus::Paused) {
                return Some(format!(
                    "all tasks of plan {} have ended, and it is {} (2: liveness)",
                    plan.id, plan.status
                ));
            }
        }
        self.state().watch.fenced().err()
    }
}
