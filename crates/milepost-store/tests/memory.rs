//! The contract, kept by the store in memory.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::time::Millis;
use milepost_store::conformance::Harness;
use milepost_store::memory::MemoryStore;
use milepost_store::{Membership, Store};

#[derive(Default)]
struct Memory(Mutex<Option<Arc<MemoryStore>>>);

impl Memory {
    fn keep(&self, store: MemoryStore) -> Arc<dyn Store> {
        let store = Arc::new(store);
        *self.0.lock().unwrap() = Some(store.clone());
        store
    }
}

#[async_trait]
impl Harness for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(MemoryStore::new())
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let reopened = self.0.lock().unwrap().as_ref().expect("a store was opened").reopen();
        self.keep(reopened)
    }

    async fn join(&self, as_whom: Membership) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.0.lock().unwrap().as_ref().expect("a store was opened").join(as_whom)))
    }

    async fn passes(&self, time: Millis) {
        tokio::time::pause();
        tokio::time::advance(time.as_duration()).await;
        tokio::time::resume();
    }
}

milepost_store::conformance_tests!(Memory::default());
