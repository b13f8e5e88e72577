//! The end of a runner's right to its task, when the node loses its lease.

use tokio_util::sync::CancellationToken;

/// Never comes on a store that has one owner: there nobody else can take a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct CutOff(pub(super) Option<CancellationToken>);

impl CutOff {
    pub(crate) fn has_come(&self) -> bool {
        self.0.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) async fn comes(&self) {
        match &self.0 {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
