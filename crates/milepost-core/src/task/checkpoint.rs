//! The checkpoint: how far a task has come, as the outside reads and writes it. A view of the log, with rules of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::StageName;
use crate::plan::StageDefinition;
use crate::time::{Millis, Timestamp};

use super::state::{FailureInfo, Task};

/// How long a checkpoint may be taken up by a manual retry.
pub const FRESH_FOR: Millis = Millis::from_secs(7 * 24 * 3600);

/// Written with the first spelling of each field; the others are read as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Checkpoint {
    pub last_completed_stage_index: i64,
    #[serde(alias = "completedStages")]
    pub completed_stage_names: Vec<StageName>,
    /// Each done stage's outputs.
    #[serde(default, alias = "contextData")]
    pub custom_data: Map<String, Value>,
    #[serde(alias = "savedAt")]
    pub timestamp: Timestamp,
    #[serde(default)]
    pub version: u64,
    #[serde(default)]
    pub executor_instance: Option<String>,
    /// Milliseconds, all attempts together.
    #[serde(default)]
    pub stage_durations: BTreeMap<String, u64>,
    #[serde(default)]
    pub failure_history: Vec<FailureInfo>,
}

/// The rule that a checkpoint breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    #[error("its last completed stage is number {index}, but the task has {stages} stages")]
    Index { index: i64, stages: usize },
    #[error("it names {names} completed stages, but its last completed stage is number {index}")]
    Length { names: usize, index: i64 },
    #[error("its completed stage `{name}` is not a stage of the task")]
    Name { name: StageName },
    #[error("it was saved at {saved}, more than 7 days ago")]
    Stale { saved: Timestamp },
    #[error("its version {found} is not newer than the stored {stored}")]
    Version { found: u64, stored: u64 },
}

impl Checkpoint {
    /// None until one stage is done, and none any more when the task is completed or rolled back.
    pub fn of(task: &Task) -> Option<Self> {
        use super::status::TaskStatus::{Completed, RolledBack};
        let timestamp = task.done_at?;
        if task.done.is_empty() || matches!(task.status, Completed | RolledBack) {
            return None;
        }
        let outputs = |(definition, state): (&StageDefinition, &super::state::StageState)| {
            let outputs = state.outputs.as_deref().filter(|_| state.status.is_done())?;
            (!outputs.is_empty()).then(|| (definition.name.to_string(), Value::Object(outputs.clone())))
        };
        Some(Self {
            last_completed_stage_index: task.done.len() as i64 - 1,
            completed_stage_names: task.done.clone(),
            custom_data: task.stages().filter_map(outputs).collect(),
            timestamp,
            version: task.version,
            executor_instance: task.node.as_deref().map(str::to_owned),
            stage_durations: task
                .stages()
                .filter(|(_, state)| state.duration > Millis::ZERO)
                .map(|(definition, state)| (definition.name.to_string(), state.duration.get()))
                .collect(),
            failure_history: task.failures.clone(),
        })
    }

    /// The rules on range, length and names; the index counts completed stages, less one.
    pub fn fits(&self, stages: &[StageDefinition]) -> Result<(), InvalidCheckpoint> {
        let index = self.last_completed_stage_index;
        let names = self.completed_stage_names.len();
        if !usize::try_from(index).is_ok_and(|index| index < stages.len()) {
            return Err(InvalidCheckpoint::Index { index, stages: stages.len() });
        }
        if names as i64 != index + 1 {
            return Err(InvalidCheckpoint::Length { names, index });
        }
        let unknown = |name: &&StageName| !stages.iter().any(|stage| stage.name == **name);
        match self.completed_stage_names.iter().find(unknown) {
            Some(name) => Err(InvalidCheckpoint::Name { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// The rule on freshness, which binds only a manual retry of a failed task.
    pub fn is_fresh(&self, now: Timestamp) -> Result<(), InvalidCheckpoint> {
        if now.since(self.timestamp) > FRESH_FOR {
            return Err(InvalidCheckpoint::Stale { saved: self.timestamp });
        }
        Ok(())
    }

    /// The rule on versions: a write with one that is not newer is ignored.
    pub fn is_newer_than(&self, stored: u64) -> Result<(), InvalidCheckpoint> {
        if self.version <= stored {
            return Err(InvalidCheckpoint::Version { found: self.version, stored });
        }
        Ok(())
    }

    /// Where a chain goes on.
    pub fn start_index(&self) -> usize {
        usize::try_from(self.last_completed_stage_index.saturating_add(1)).unwrap_or(0)
    }
}
