//! Recorded runs against today's code, for a test suite: what would not go on after a deployment is found before it.

use milepost_engine::workflow::{Diverged, History, Replayed, TypedWorkflow};

/// Runs a workflow's function, as it is now, against a recorded run. No stage is run, nothing is written, and every
/// answer comes from the log; the first thing that does not fit is the error.
///
/// `Engine::history` and `milepost replay TASK --export` make recordings, which are JSON.
pub fn replay<W: TypedWorkflow>(workflow: impl FnOnce() -> W, history: &History) -> Result<Replayed, Diverged> {
    milepost_engine::workflow::replay(&workflow(), history)
}
