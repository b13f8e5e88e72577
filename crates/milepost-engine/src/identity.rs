//! Which store this node works on, and so whose the work is that it does.

use std::sync::{Arc, OnceLock};

use milepost_core::retry::seed_of;
use milepost_core::task::TaskSpec;
use milepost_store::{StoreError, store_id};

use crate::engine::Inner;

/// The store's id, once it is known.
#[derive(Debug, Default)]
pub(crate) struct StoreIdentity(OnceLock<Arc<str>>);

impl Inner {
    /// Finds out the store's id, and gives it one if it has none. Nothing is claimed before it is known.
    pub(crate) async fn know_store(&self) -> Result<(), StoreError> {
        if self.store_identity.0.get().is_none() {
            let fresh = format!("{:016x}", seed_of(self.boot_id()));
            let id = store_id(&*self.store, &fresh, self.clock.now()).await?;
            let _ = self.store_identity.0.set(id);
        }
        Ok(())
    }

    /// Tells a task from all others of its name: those of other stores, and those that an update had removed before
    /// it was added. A store that is moved keeps it.
    pub(crate) fn origin_of(&self, task: &TaskSpec) -> Arc<str> {
        let store = self.store_identity.0.get().map_or("", |id| &**id);
        format!("{:016x}", seed_of(&format!("{store}/{}", task.created_at.as_millis()))).into()
    }
}
