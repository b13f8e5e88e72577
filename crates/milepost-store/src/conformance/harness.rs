//! What a backend lends to the suite.

use std::sync::Arc;

use async_trait::async_trait;

use crate::store::Store;

/// Makes stores of one backend.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A store with nothing in it.
    async fn open(&self) -> Arc<dyn Store>;

    /// The store that was opened last, with its data, under a new owner, as after a crash of the old one. The old handle
    /// may still be around: it has to be locked out.
    async fn reopen(&self) -> Arc<dyn Store>;

    /// Damages whatever the backend keeps beside the log so as not to read it all. Without any such thing there is
    /// nothing to do.
    async fn damage_snapshots(&self) {}

    /// How many random histories to try, each on a store of its own.
    fn seeds(&self) -> u64 {
        200
    }
}
