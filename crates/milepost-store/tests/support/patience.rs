//! How long a test waits for what is sure to happen.

use std::time::Duration;

/// Longer than anything takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
