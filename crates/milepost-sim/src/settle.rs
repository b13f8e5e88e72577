//! Liveness: once nothing goes wrong any more, every task ends, or waits for something that `explain` names and that is so.

use std::time::Duration;

use futures::FutureExt;
use milepost_core::api::{Explanation, Reason};
use milepost_core::id::TaskId;
use milepost_core::plan::{Recovery, TaskCounts};
use milepost_core::task::{PlanStatus, Task, TaskStatus};
use milepost_engine::{Received, VerbError, explain};
use milepost_store::{PlanQuery, Store};

use crate::shared::Shared;
use crate::world::World;

/// Longer than any wait that a schedule knows.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl World<'_> {
    /// Waits until nothing is left to do, and says who is stuck if that takes too long.
    pub(crate) async fn settle(&mut self) {
        self.revive();
        let (mut seen, mut since) = (0, self.shared.elapsed());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.shared.look();
            if self.shared.violation().is_some() {
                return;
            }
            // A process that was told to stop may be the last of its node.
            self.revive();
            let Some(stuck) = self.shared.unsettled() else { return self.shared.check_end() };
            let commits = self.shared.state().watch.commits;
            if commits != seen {
                (seen, since) = (commits, self.shared.elapsed());
            } else if self.shared.elapsed() - since > PATIENCE {
                return self.shared.violated(format!("{stuck} (2: liveness)"));
            }
        }
    }
}

impl Shared {
    /// The queue was told that it need not keep a message.
    pub(crate) fn acknowledged(&self, task: &TaskId, received: Received) {
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
    fn unsettled(&self) -> Option<String> {
        let open: Vec<TaskId> = {
            let state = self.state();
            state.watch.tasks().filter(|task| !task.status().is_ended()).map(|task| task.id().clone()).collect()
        };
        open.into_iter().find_map(|id| {
            let (task, explanation) = self.explained(&id)?;
            let settled = self.is_settled(&task, &explanation, 0);
            (!settled)
                .then(|| format!("{id} is {} and {:?}: {}", task.status(), explanation.reason, explanation.message))
        })
    }

    fn explained(&self, id: &TaskId) -> Option<(Task, Explanation)> {
        // One that an update removed is none any more.
        let stored = self.truth.task(id).now_or_never()?.ok()??;
        let explanation = explain(&self.truth, id, self.now(), Default::default()).now_or_never()?.ok()??;
        Some((stored.task, explanation))
    }

    /// Whether it waits for a person or a message, directly or behind somebody who does; and what is said of it is so.
    fn is_settled(&self, task: &Task, explanation: &Explanation, depth: u32) -> bool {
        let spec = task.spec();
        let plan = self.truth.plan(&spec.plan).now_or_never().and_then(Result::ok).flatten();
        let plan_is = |status| plan.as_ref().is_some_and(|plan| plan.status == status);
        let waits = |id: &TaskId| {
            depth < 10
                && self.explained(id).is_some_and(|(task, explanation)| {
                    !task.status().is_ended() && self.is_settled(&task, &explanation, depth + 1)
                })
        };
        match explanation.reason {
            Reason::Ended | Reason::Failed => task.status().is_ended() || task.status() == TaskStatus::RollbackFailed,
            Reason::Paused => task.status() == TaskStatus::Paused,
            Reason::PlanPaused => plan_is(PlanStatus::Paused),
            Reason::PlanNotStarted => plan_is(PlanStatus::Ready) || plan_is(PlanStatus::Created),
            Reason::AwaitingMessage => task.awaits_message(),
            Reason::AwaitingSignal => explanation.data.get("dueAt").is_none(),
            Reason::Interrupted => spec.settings.recovery == Some(Recovery::Manual),
            Reason::AwaitingChild => {
                let child = explanation.data.get("child").and_then(|child| child.as_str());
                child.and_then(|child| TaskId::parse(child).ok()).is_some_and(|child| waits(&child))
            }
            Reason::TenantLocked => {
                let holder = explanation.data.get("heldBy").and_then(|held| held.as_str()?.split(':').next_back());
                holder.and_then(|holder| TaskId::parse(holder).ok()).is_some_and(|holder| waits(&holder))
            }
            Reason::NoSlot => {
                let others: Vec<TaskId> = {
                    let state = self.state();
                    state.watch.taken(&spec.plan).map(|other| other.id().clone()).collect()
                };
                !others.is_empty() && others.iter().all(waits)
            }
            _ => false,
        }
    }

    /// A person was told that something was done, or that it was refused. Who asked for what was so already changed
    /// nothing, and is right too.
    pub(crate) fn answered(&self, person: &str, answer: &Result<(), VerbError>, writes: bool) {
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

    /// What has to be so when everything has come to rest.
    fn check_end(&self) {
        let locks = self.truth.locks().now_or_never().and_then(Result::ok).unwrap_or_default();
        let tasks: Vec<Task> = self.state().watch.tasks().cloned().collect();
        for task in &tasks {
            let id = task.id();
            if self.state().watch.messages_taken(id) > 1 {
                self.violated(format!("{id} has taken its message in twice (8)"));
            }
            if task.status().is_ended() && locks.iter().any(|lock| lock.task == *id) {
                self.violated(format!("{id} has ended and keeps its tenant closed (4)"));
            }
        }
        let query = PlanQuery { open_only: false, after: None, limit: 1000 };
        let plans = self.truth.plans(query).now_or_never().and_then(Result::ok).map(|page| page.items);
        for plan in plans.into_iter().flatten() {
            let mut counts = TaskCounts::default();
            tasks.iter().filter(|task| task.spec().plan == plan.id).for_each(|task| counts.add(task.status(), 1));
            if counts != plan.counts {
                self.violated(format!("plan {} counts its tasks as {:?}; they are {counts:?}", plan.id, plan.counts));
            }
            let all_ended =
                tasks.iter().filter(|task| task.spec().plan == plan.id).all(|task| task.status().is_ended());
            if all_ended && matches!(plan.status, PlanStatus::Running | PlanStatus::Paused) {
                self.violated(format!(
                    "all tasks of plan {} have ended, and it is {} (2: liveness)",
                    plan.id, plan.status
                ));
            }
        }
    }
}
