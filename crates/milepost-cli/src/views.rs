//! What views have in common, wherever they came from.

use milepost_core::plan::TaskCounts;

pub(crate) use milepost_store::report::{MOST_SHOWN, failures, plan_progress, plan_report};

pub(crate) fn failed(counts: &TaskCounts) -> u64 {
    counts.failed + counts.rolled_back + counts.rollback_failed
}
