//! Whether the brokers can be reached, said once when it changes and not at every attempt.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Reach {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    away: bool,
    /// What was last said of a trouble that is not over.
    trouble: Option<String>,
}

impl Reach {
    pub(crate) fn lost(&self, why: &dyn std::fmt::Display) {
        let was_away = std::mem::replace(&mut self.state().away, true);
        if !was_away {
            tracing::warn!("Kafka is out of reach; running tasks go on: {why}");
        }
    }

    /// Something else went wrong, and is tried again.
    pub(crate) fn troubled(&self, what: &str) {
        let mut state = self.state();
        if state.trouble.as_deref() != Some(what) {
            tracing::warn!("{what}");
            state.trouble = Some(what.to_owned());
        }
    }

    pub(crate) fn found(&self) {
        let was_away = std::mem::take(&mut self.state().away);
        if was_away {
            tracing::info!("Kafka is back");
        }
    }

    /// What went wrong goes well again.
    pub(crate) fn well(&self) {
        self.found();
        self.state().trouble = None;
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().away
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
