//! What a backend lends to the suite.

use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::time::Millis;

use crate::nodes::Membership;
use crate::store::Store;

/// What of a task is to fail its checksum from now on.
#[derive(Debug, Clone, Copy)]
pub enum Damage<'a> {
    /// The row of its log that begins with this event.
    Row { task: &'a str, sequence: u64 },
    /// Its definition, of which it has something of its own.
    Definition { task: &'a str },
}

/// Makes stores of one backend.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A store with nothing in it.
    async fn open(&self) -> Arc<dyn Store>;

    /// The store that was opened last, with its data, under a new owner, as after a crash of the old one. The old handle
    /// may still be around: it has to be locked out.
    async fn reopen(&self) -> Arc<dyn Store>;

    /// The store that was opened last, for another process that shares it. None where only one can have it.
    async fn join(&self, _as_whom: Membership) -> Option<Arc<dyn Store>> {
        None
    }

    /// As if so much time had passed for the store that was opened last, without a word of anybody.
    async fn passes(&self, _time: Millis) {}

    /// Damages whatever the backend keeps beside the log so as not to read it all. Without any such thing there is
    /// nothing to do.
    async fn damage_snapshots(&self) {}

    /// Damages what is kept of a task. False where there is nothing of the kind to damage.
    async fn damage(&self, _damage: Damage<'_>) -> bool {
        false
    }

    /// How many random histories to try, each on a store of its own.
    fn seeds(&self) -> u64 {
        200
    }
}
