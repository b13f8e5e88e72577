//! The contract, kept by the store in memory.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_store::Store;
use milepost_store::conformance::Harness;
use milepost_store::memory::MemoryStore;

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
}

milepost_store::conformance_tests!(Memory::default());
