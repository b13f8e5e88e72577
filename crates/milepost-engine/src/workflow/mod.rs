//! Workflows: plain async functions whose awaited steps are recorded, so that after a crash they are answered from the log.
//!
//! The function is polled inside its runner's own task. It asks through the desk; the runner answers there, one answer at
//! a time and in the order of the log, whether the answer is new or years old: a replay is not another way of running.

mod answer;
mod child;
mod context;
mod desk;
mod divergence;
mod function;
mod history;
mod operation;
mod rollback;
mod runner;
mod stage;
mod stand_in;
mod undo;
mod wait;
mod waiting;

pub(crate) use child::open_children;
pub(crate) use runner::FlowRunner;

pub use child::{Run, outcome};
pub use context::{Context, Draw};
pub use function::{TypedWorkflow, Workflow};
pub use history::{Diverged, History, Replayed, log, replay};
pub use stage::Stage;
pub use stand_in::{Call, StandIns};
pub use wait::Signal;
