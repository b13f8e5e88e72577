//! Tasks: what can happen to one, what that leaves behind, and what happens next.

mod apply;
mod checkpoint;
mod decide;
mod event;
mod state;
mod status;
mod view;

pub use apply::{CorruptLog, next_status};
pub use checkpoint::{Checkpoint, FRESH_FOR, InvalidCheckpoint};
pub use decide::{Claim, Command, Decision, MAX_TAKEOVERS, Rejection, StageEnded, StageResult, decide};
pub use event::{By, Cause, Event, EventView, Outputs, Record};
pub use state::{FailureInfo, StageState, Task, TaskFailure, TaskSpec, Undo};
pub use status::{PlanStatus, StageStatus, TaskStatus};
pub use view::{FailureView, RetryView, StageView, TaskContext, TaskView, percent};
