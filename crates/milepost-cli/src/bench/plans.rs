//! The plans that benchmarks submit.

use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Action, Plan, PlanDefinition, Settings, StageDefinition, TaskDefinition};
use milepost_core::retry::RetryPolicy;
use milepost_core::time::Millis;
use serde_json::{Map, Value, json};

/// What all plans of a workload have in common.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) stages: usize,
    pub(super) kind: &'static str,
    pub(super) failures: u64,
    pub(super) retry: RetryPolicy,
    pub(super) max_concurrency: usize,
}

impl Shape {
    pub(super) fn chain(stages: usize) -> Self {
        Self { stages, kind: "bench", failures: 0, retry: RetryPolicy::default(), max_concurrency: 1 }
    }

    /// Each stage fails once; the wait is the shortest that there is.
    pub(super) fn retry(stages: usize) -> Self {
        let retry = RetryPolicy { base: Millis::new(1), max_attempts: 2, ..RetryPolicy::default() };
        Self { failures: 1, retry, ..Self::chain(stages) }
    }

    /// A plan of `tasks` tasks under a name that no other has.
    pub(super) fn plan(&self, id: &str, tasks: usize) -> Arc<Plan> {
        let with = if self.failures == 0 { Value::Null } else { json!({ "failures": self.failures }) };
        let stage = |index: usize| StageDefinition {
            name: StageName::parse(format!("s{index}")).expect("a letter and a number"),
            action: Action { uses: self.kind.to_owned(), script: None, with: with.clone() },
            needs: index.checked_sub(1).into_iter().collect(),
            condition: None,
            retry: self.retry.clone(),
            timeout: Some(Millis::from_secs(300)),
            rollback: None,
        };
        let task = |index: usize| TaskDefinition {
            id: TaskId::parse(format!("{id}-{}", index + 1)).expect("a plan id and a number"),
            tenant: None,
            priority: 0,
            input: Value::Null,
            matrix: Map::new(),
            stages: None,
            file: None,
            message: None,
        };
        let settings = Settings {
            max_concurrency: u32::try_from(self.max_concurrency).unwrap_or(u32::MAX),
            ..Settings::default()
        };
        let definition = PlanDefinition {
            id: PlanId::parse(id).expect("letters, digits and hyphens"),
            settings,
            stages: (0..self.stages).map(stage).collect(),
            workflow: None,
            parent: None,
        };
        Arc::new(Plan { definition, tasks: (0..tasks).map(task).collect() })
    }
}
