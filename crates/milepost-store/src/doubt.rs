//! Claims of which nobody knows whether they have arrived, or whose answer nobody waited for: their tasks may be this
//! node's, and then no other node would run them. The next claim finds out.
//!
//! Finding out ends the doubt for good: a statement that is still on its way by then either is waited for, or takes
//! nothing any more. Else it could take tasks that nobody looks for.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, StoredTask};

#[derive(Debug, Clone, Default)]
pub(crate) struct Doubtful(Arc<Mutex<Vec<StoredTask>>>);

impl Doubtful {
    /// Only what would be held is of interest; what ended in being claimed has ended, or is there to be claimed.
    pub(crate) fn keep(&self, tasks: impl IntoIterator<Item = StoredTask>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(tasks.into_iter().filter(|stored| stored.epoch != 0));
    }

    /// What a claim may have; the rest stays in doubt. Tasks of an earlier session are orphans by now, and claimed like
    /// any other.
    pub(crate) fn take(&self, request: &ClaimRequest, is_of_session: impl Fn(u64) -> bool) -> Vec<StoredTask> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|stored| is_of_session(stored.epoch));
        let is_asked_for =
            |stored: &StoredTask| request.only.as_ref().is_none_or(|plan| *plan == stored.task.spec().plan);
        let (mut asked, mut others): (Vec<_>, Vec<_>) = kept.drain(..).partition(is_asked_for);
        others.extend(asked.drain(request.limit.min(asked.len())..));
        *kept = others;
        asked
    }

    /// Makes a claim to its end, also when nobody waits for it any more: what it took is then the next claim's.
    pub(crate) async fn claim(
        &self,
        backend: &'static str,
        claim: impl Future<Output = Result<Claimed, StoreError>> + Send + 'static,
    ) -> Result<Claimed, StoreError> {
        let (reply, answer) = oneshot::channel();
        let doubtful = self.clone();
        tokio::spawn(async move {
            if let Err(Ok(unheard)) = reply.send(claim.await) {
                doubtful.keep(unheard.tasks);
            }
        });
        let source = "it panicked; the log says why";
        let failed = |_| Err(StoreError::Unavailable { backend, operation: "claim", source: source.into() });
        answer.await.unwrap_or_else(failed)
    }
}
