//! Where the futures of a node run.

use std::sync::Arc;

use futures::future::BoxFuture;

/// On tokio; or where a simulator says, which can freeze all that belongs to a node, and let it die with its node.
#[derive(Clone, Default)]
pub struct Spawner(Option<Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>>);

impl Spawner {
    /// Hands every future of the node to `spawn`, which has to see to it that it is polled.
    pub fn new(spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(spawn)))
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match &self.0 {
            None => drop(tokio::spawn(work)),
            Some(spawn) => spawn(Box::pin(work)),
        }
    }
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_none() { "tokio" } else { "a spawner of its own" })
    }
}
