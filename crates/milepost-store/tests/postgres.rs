//! The contract, kept by PostgreSQL: each test in a schema of its own, on the server that `MILEPOST_TEST_POSTGRES` names.

#[path = "support/postgres.rs"]
mod support;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::time::Millis;
use milepost_store::conformance::{Damage, Harness};
use milepost_store::{Membership, PostgresStore, Store};

use support::{Schema, is_there};

#[derive(Default)]
struct Postgres(Mutex<Option<Schema>>);

impl Postgres {
    async fn open_in(&self, schema: Schema) -> Arc<dyn Store> {
        // Nobody beats here, and a history may take longer than a lease on a slow machine.
        let membership = Membership { lease: Millis::from_secs(3600), ..Membership::node("node-1", "boot") };
        let store = PostgresStore::open(&schema.url, membership).await.unwrap();
        *self.0.lock().unwrap() = Some(schema);
        Arc::new(store)
    }
}

#[async_trait]
impl Harness for Postgres {
    async fn open(&self) -> Arc<dyn Store> {
        let last = self.0.lock().unwrap().take();
        if let Some(last) = last {
            last.remove().await;
        }
        self.open_in(Schema::new().await).await
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let schema = self.0.lock().unwrap().take().expect("a store was opened");
        self.open_in(schema).await
    }

    async fn join(&self, as_whom: Membership) -> Option<Arc<dyn Store>> {
        let url = self.0.lock().unwrap().as_ref().expect("a store was opened").url.clone();
        Some(Arc::new(PostgresStore::open(&url, as_whom).await.unwrap()))
    }

    async fn passes(&self, time: Millis) {
        let schema = self.0.lock().unwrap().take().expect("a store was opened");
        let ms = time.get();
        let nodes = ["started_at", "seen_at", "expires_at"].map(|time| format!("{time} = {time} - {ms}")).join(", ");
        schema.run(&format!("UPDATE @.nodes SET {nodes}")).await;
        schema.run(&format!("UPDATE @.locks SET expires_at = expires_at - {ms}")).await;
        schema.run(&format!("UPDATE @.counters SET heard_at = heard_at - {ms}")).await;
        *self.0.lock().unwrap() = Some(schema);
    }

    async fn damage_snapshots(&self) {
        let schema = self.0.lock().unwrap().take().expect("a store was opened");
        let damaged = schema.run("UPDATE @.snapshots SET body = replace(body, 'COMPLETED', 'COMPLETE')").await;
        assert_eq!(damaged, 1, "there was a snapshot");
        *self.0.lock().unwrap() = Some(schema);
    }

    async fn damage(&self, damage: Damage<'_>) -> bool {
        let schema = self.0.lock().unwrap().take().expect("a store was opened");
        let sql = match damage {
            Damage::Row { task, sequence } => format!(
                "UPDATE @.events SET body = body || ' ' WHERE seq = {sequence} \
                 AND task = (SELECT no FROM @.task_configs WHERE id = '{task}')"
            ),
            Damage::Definition { task } => {
                format!("UPDATE @.task_configs SET body = body || ' ' WHERE id = '{task}'")
            }
        };
        let damaged = schema.run(&sql).await;
        *self.0.lock().unwrap() = Some(schema);
        damaged == 1
    }

    /// A history is some thousand round trips and takes seconds; MILEPOST_TEST_SEEDS asks for more of them.
    fn seeds(&self) -> u64 {
        std::env::var("MILEPOST_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30)
    }
}

macro_rules! tests {
    (() $($module:ident { $($case:ident),+ $(,)? })+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                if is_there(stringify!($case)) {
                    let harness = Postgres::default();
                    milepost_store::conformance::run(&harness, stringify!($case)).await;
                    let last = harness.0.lock().unwrap().take();
                    if let Some(last) = last {
                        last.remove().await;
                    }
                }
            }
        )+)+
    };
}
milepost_store::__conformance_cases!(tests());
