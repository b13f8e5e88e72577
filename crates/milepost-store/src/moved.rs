//! A plan on its way from one store to another: all that the one has of it, and a digest that the other must come to.

use milepost_core::plan::Plan;
use milepost_core::task::{Record, Task, TaskStatus};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::model::{LockRow, LogChunk, PlanRow, Wake};

/// All that one store has of a plan, and another is to have of it, its history and its times included. No node holds any
/// of it: stores are moved while they are stopped.
#[derive(Debug, Clone)]
pub struct MovedPlan {
    pub plan: Plan,
    pub row: PlanRow,
    /// In the order of the plan.
    pub tasks: Vec<MovedTask>,
    /// The tenants that its tasks have.
    pub locks: Vec<LockRow>,
}

#[derive(Debug, Clone)]
pub struct MovedTask {
    pub task: Task,
    /// All of them, from the creation on.
    pub events: Vec<Record>,
    /// When it goes on, if it is RUNNING or ROLLING_BACK.
    pub wake: Wake,
    pub output: Vec<LogChunk>,
}

impl MovedTask {
    /// Its node is gone, and nobody has said so in its log yet: whoever claims it does.
    pub(crate) fn is_orphan(&self) -> bool {
        self.task.status().is_active() && self.wake == Wake::Recovery && !self.task.interrupted()
    }

    /// A rollback that a person asked for and nobody has begun: it has neither slot nor tenant yet.
    pub(crate) fn is_asked(&self) -> bool {
        self.task.status() == TaskStatus::RollingBack
            && matches!(self.wake, Wake::At(_))
            && self.task.next_due().is_none()
    }
}

impl MovedPlan {
    /// Of everything that a move must keep: the same in both stores, or something was lost on the way.
    pub fn digest(&self) -> [u8; 32] {
        // For which nodes it is set going, each store says for itself.
        let row = PlanRow { waits_for_person: false, ..self.row.clone() };
        let mut hash = Sha256::new();
        let mut add = |value: serde_json::Value| hash.update(value.to_string());
        add(json!([self.plan.definition, row]));
        for (definition, moved) in self.plan.tasks.iter().zip(&self.tasks) {
            let task = &moved.task;
            add(json!([definition, task.spec().id, task.status(), task.version(), task.spec().created_at]));
            add(json!(match moved.wake {
                Wake::At(at) => Some(at),
                Wake::Recovery => None,
            }));
            moved.events.iter().for_each(|record| add(json!(record)));
            for chunk in &moved.output {
                let bytes: [u8; 32] = Sha256::digest(&chunk.bytes).into();
                add(json!([chunk.stage, chunk.attempt, chunk.at, bytes]));
            }
        }
        for lock in &self.locks {
            add(json!([lock.tenant, lock.task, lock.since, lock.fence]));
        }
        hash.finalize().into()
    }
}

/// Of many plans, in their order.
pub fn total_digest(plans: &[[u8; 32]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    plans.iter().for_each(|digest| hash.update(digest));
    hash.finalize().into()
}
