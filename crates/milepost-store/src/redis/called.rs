//! Being called by other processes: a connection of its own, on which they say that something may be there to do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::shared::Shared;

/// Before the next try to connect again.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends its task when it is dropped.
#[derive(Debug)]
pub(super) struct Ear {
    called: Arc<Notify>,
    task: AbortHandle,
}

impl Ear {
    pub(super) fn open(shared: &Arc<Shared>) -> Self {
        let called = Arc::new(Notify::new());
        let task = tokio::spawn(listen(Arc::downgrade(shared), called.clone())).abort_handle();
        Self { called, task }
    }

    /// Also when somebody called since the last time.
    pub(super) async fn called(&self) {
        self.called.notified().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(shared: Weak<Shared>, called: Arc<Notify>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let channel = strong.prelude.key("called");
        let listener = strong.link.listen(&channel).await;
        drop(strong);
        match listener {
            Ok(mut listener) => {
                // What was said while nobody listened is not said again.
                called.notify_one();
                let mut messages = listener.on_message();
                while let Some(message) = messages.next().await {
                    let Some(shared) = shared.upgrade() else { return };
                    if concerns(&shared, message.get_payload_bytes()) {
                        called.notify_one();
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "nobody can call; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// `work SESSION` from another than ourselves, `letter SESSION` for ourselves, or an answer, which may be for anybody.
fn concerns(shared: &Shared, message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message);
    let (what, who) = text.split_once(' ').unwrap_or((&text, ""));
    let ours = who.parse() == Ok(shared.session.number());
    match what {
        "work" => !ours,
        "letter" => ours,
        _ => true,
    }
}
