//! Which kind a plan file means by which name.

use std::sync::Arc;

use milepost_engine::stage::StageKind;

use crate::{NoopKind, RunKind};

/// Every built-in kind under the name that plan files use: `run` and `noop`.
pub fn builtin() -> Vec<(&'static str, Arc<dyn StageKind>)> {
    vec![("run", Arc::new(RunKind::new())), ("noop", Arc::new(NoopKind))]
}
