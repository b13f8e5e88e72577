//! Tasks: what can happen to one, what that leaves behind, and what happens next.

mod apply;
mod checkpoint;
mod decide;
mod event;
mod flow;
mod going;
mod image;
mod progress;
mod replay;
mod state;
mod status;
mod view;

pub use apply::{CorruptLog, next_status};
pub use checkpoint::{Checkpoint, FRESH_FOR, InvalidCheckpoint};
pub use decide::{Claim, Command, Decision, MAX_TAKEOVERS, Rejection, StageEnded, StageResult, decide, decide_on};
pub use event::{By, Cause, Event, EventView, Outputs, Record};
pub use flow::{Answer, Flow, Step, StepKind, outputs_of, value_of};
pub use going::lets_go;
pub use image::InvalidImage;
pub use progress::{ends_progress, percent, percent_with, share};
pub use replay::{Decided, Difference, replay};
pub use state::{Damage, FailureInfo, StageState, Task, TaskFailure, TaskSpec, Undo};
pub use status::{PlanStatus, StageStatus, TaskStatus};
pub use view::{FailureView, RetryView, StageProgress, StageView, TaskContext, TaskView};
