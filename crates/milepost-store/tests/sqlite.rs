//! The contract, kept by SQLite.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_store::Store;
use milepost_store::conformance::{Damage, Harness};
use milepost_store::sqlite::SqliteStore;

#[derive(Default)]
struct Sqlite(Mutex<Option<(tempfile::TempDir, Arc<SqliteStore>)>>);

impl Sqlite {
    fn open_in(&self, folder: tempfile::TempDir) -> Arc<dyn Store> {
        let store = Arc::new(SqliteStore::open(folder.path().join("store.db")).unwrap());
        *self.0.lock().unwrap() = Some((folder, store.clone()));
        store
    }
}

#[async_trait]
impl Harness for Sqlite {
    async fn open(&self) -> Arc<dyn Store> {
        self.open_in(tempfile::tempdir().unwrap())
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let (folder, old) = self.0.lock().unwrap().take().expect("a store was opened");
        old.close();
        self.open_in(folder)
    }

    async fn damage_snapshots(&self) {
        let opened = self.0.lock().unwrap();
        let (folder, _) = opened.as_ref().expect("a store was opened");
        let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        let damaged = file.execute("UPDATE snapshots SET body = replace(body, 'COMPLETED', 'COMPLETE')", []).unwrap();
        assert_eq!(damaged, 1, "there was a snapshot");
    }

    async fn damage(&self, damage: Damage<'_>) -> bool {
        let opened = self.0.lock().unwrap();
        let (folder, _) = opened.as_ref().expect("a store was opened");
        let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        let damaged = match damage {
            Damage::Row { task, sequence } => file.execute(
                "UPDATE events SET body = body || ' ' WHERE seq = ?2 AND task = (SELECT no FROM task_configs WHERE id = ?1)",
                (task, sequence as i64),
            ),
            Damage::Definition { task } => {
                file.execute("UPDATE task_configs SET body = body || ' ' WHERE id = ?1", [task])
            }
        };
        damaged.unwrap() == 1
    }
}

milepost_store::conformance_tests!(Sqlite::default());
