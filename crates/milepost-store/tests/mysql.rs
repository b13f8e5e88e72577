//! The contract, kept by MySQL.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::time::Millis;
use milepost_store::conformance::{Damage, Harness};
use milepost_store::{Membership, MysqlStore, Store};

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/mysql.rs"]
mod support;

use support::Database;

struct Mysql {
    server: String,
    database: Mutex<Option<Database>>,
}

impl Mysql {
    fn new(server: String) -> Self {
        Self { server, database: Mutex::default() }
    }

    fn database(&self) -> Option<Database> {
        self.database.lock().unwrap().clone()
    }
}

#[async_trait]
impl Harness for Mysql {
    /// Making tables takes longer than most cases do, so a case that wants another store gets the old one emptied.
    async fn open(&self) -> Arc<dyn Store> {
        match self.database() {
            Some(database) => {
                let empty = [
                    "sync_tasks",
                    "task_unit_configs",
                    "task_unit_runtimes",
                    "milepost_events",
                    "milepost_snapshots",
                    "milepost_locks",
                    "milepost_nodes",
                    "milepost_logs",
                    "milepost_requests",
                    "milepost_books",
                ];
                let empty: String = empty.iter().map(|table| format!("DELETE FROM {table};")).collect();
                let first = "UPDATE milepost_counters SET position = 0, plans = 0, tasks = 0, entries = 0";
                database.execute(&format!("BEGIN; {empty} {first}; COMMIT")).await;
            }
            None => {
                let database = Database::create(&self.server).await;
                *self.database.lock().unwrap() = Some(database);
            }
        }
        self.reopen().await
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let database = self.database().expect("a store was opened");
        let membership = Membership::node("node", support::unique("boot"));
        Arc::new(MysqlStore::open(&database.url(), membership).await.unwrap())
    }

    async fn join(&self, as_whom: Membership) -> Option<Arc<dyn Store>> {
        let database = self.database().expect("a store was opened");
        Some(Arc::new(MysqlStore::open(&database.url(), as_whom).await.unwrap()))
    }

    async fn passes(&self, time: Millis) {
        let (database, ms) = (self.database().expect("a store was opened"), time.get());
        let nodes = ["started_at", "seen_at", "expires_at"].map(|time| format!("{time} = {time} - {ms}")).join(", ");
        database.execute(&format!("UPDATE milepost_nodes SET {nodes}")).await;
        database.execute(&format!("UPDATE milepost_locks SET expires_at = expires_at - {ms}")).await;
        database.execute(&format!("UPDATE milepost_heard SET at = at - {ms}")).await;
    }

    async fn damage_snapshots(&self) {
        let sql = "UPDATE milepost_snapshots SET body = REPLACE(body, 'COMPLETED', 'COMPLETE')";
        let database = self.database().expect("a store was opened");
        assert_eq!(database.execute(sql).await, 1, "there was a snapshot");
    }

    async fn damage(&self, damage: Damage<'_>) -> bool {
        let sql = match damage {
            Damage::Row { task, sequence } => format!(
                "UPDATE milepost_events SET body = CONCAT(body, ' ') WHERE sequence = {sequence} \
                 AND task = (SELECT id FROM task_unit_configs WHERE unit_name = '{task}')"
            ),
            Damage::Definition { task } => {
                format!("UPDATE task_unit_configs SET body = CONCAT(body, ' ') WHERE unit_name = '{task}'")
            }
        };
        self.database().expect("a store was opened").execute(&sql).await == 1
    }

    /// Each takes a second or more, because every look is a round trip.
    fn seeds(&self) -> u64 {
        40
    }
}

milepost_store::conformance_tests!(match support::server() {
    Some(server) => Mysql::new(server),
    None => return,
});
