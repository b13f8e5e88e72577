//! What this node has seen of each key that a retry policy names: one memory for all tasks, gone when the node is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use milepost_core::breaker::{Guard, Health, Verdict};
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::retry::RetryPolicy;
use milepost_core::task::StageResult;
use milepost_core::time::{Millis, Timestamp};

/// Keys may be made of anything, a customer's number say; those that have nothing to tell are dropped beyond this many.
const MANY: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Guards {
    keys: Mutex<HashMap<String, Health>>,
}

/// An attempt that has ended, and what its delay is drawn from.
pub(crate) struct Attempt<'a> {
    pub(crate) policy: &'a RetryPolicy,
    pub(crate) stage: &'a StageName,
    pub(crate) attempt: u32,
    pub(crate) seed: u64,
}

impl Guards {
    /// Whether an attempt may be made now; if not, the failure that it comes to instead.
    pub(crate) fn admit(&self, policy: &RetryPolicy, now: Timestamp) -> Result<(), Failure> {
        let Some(Guard { breaker: Some(breaker), key: Some(key), .. }) = policy.guard.as_deref() else { return Ok(()) };
        // A key that nobody has reported of is closed.
        let Some(refusal) = self.keys().get_mut(key).and_then(|health| health.admit(breaker, now).err()) else {
            return Ok(());
        };
        let failure = Failure::retryable(ErrorType::Unavailable, refusal.of(key).to_string());
        Err(failure.after(refusal.until.since(now)))
    }

    /// Takes note of how an attempt ended, and lets its delay grow with what is known of its key.
    pub(crate) fn ended(&self, attempt: &Attempt<'_>, result: &mut StageResult, now: Timestamp) {
        let Some(Guard { breaker, adaptive, key: Some(key) }) = attempt.policy.guard.as_deref() else { return };
        let verdict = match result {
            StageResult::Success(_) => Verdict::Success,
            StageResult::Failure(failure) if failure.retryable => Verdict::Failure,
            StageResult::Failure(_) | StageResult::Skip(_) => Verdict::Unclear,
            StageResult::Refused(_) => return,
        };
        let mut keys = self.keys();
        if keys.len() >= MANY && !keys.contains_key(key) {
            keys.retain(|_, health| !health.is_closed());
        }
        let health = keys.entry(key.clone()).or_default();
        health.ended(breaker.as_ref(), verdict, now);
        if let StageResult::Failure(failure) = result
            && *adaptive
        {
            let delay = attempt.policy.delay(attempt.seed, attempt.stage, attempt.attempt);
            // The longest wait that the policy allows stays the longest.
            let longest = attempt.policy.max.unwrap_or(Millis::new(u64::MAX)).max(delay);
            let stretched = health.stretch(delay, now).min(longest);
            failure.retry_after = failure.retry_after.max(Some(stretched));
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, Health>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
