//! Which kind a plan file means by which name.

use std::sync::Arc;

use milepost_engine::stage::StageKind;

use crate::{HttpKind, NoopKind, RunKind};

/// Every built-in kind under the name that plan files use: `run`, `http` and `noop`.
pub fn builtin() -> Vec<(&'static str, Arc<dyn StageKind>)> {
    vec![("run", Arc::new(RunKind::new())), ("http", Arc::new(HttpKind::new())), ("noop", Arc::new(NoopKind))]
}
