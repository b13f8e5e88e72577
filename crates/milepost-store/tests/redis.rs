//! The contract, kept by Redis. Needs `MILEPOST_TEST_REDIS=redis://…`; every case has a prefix of its own.

mod redis_server;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::time::Millis;
use milepost_store::conformance::{Damage, Harness};
use milepost_store::redis::RedisStore;
use milepost_store::{Membership, Store};
use redis_server::Place;

#[derive(Default)]
struct Redis(Mutex<Option<Place>>);

impl Redis {
    fn place(&self) -> Place {
        self.0.lock().unwrap().clone().expect("a store was opened")
    }
}

#[async_trait]
impl Harness for Redis {
    async fn open(&self) -> Arc<dyn Store> {
        *self.0.lock().unwrap() = Some(Place::new());
        self.reopen().await
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let boot = format!("boot-{}", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
        Arc::new(RedisStore::open(&self.place().url, Membership::node("node", boot)).await.unwrap())
    }

    async fn join(&self, as_whom: Membership) -> Option<Arc<dyn Store>> {
        Some(Arc::new(RedisStore::open(&self.place().url, as_whom).await.unwrap()))
    }

    async fn passes(&self, time: Millis) {
        let (place, ms) = (self.place(), i64::try_from(time.get()).unwrap());
        for key in ["mp:sessions", "mp:renew"] {
            let key = place.key(key);
            let members: Vec<String> = place.ask(redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1)).await;
            for member in members {
                let _: String = place.ask(redis::cmd("ZINCRBY").arg(&key).arg(-ms).arg(member)).await;
            }
        }
        let mut times = vec![(place.key("mp:heard"), "at")];
        for node in place.keys("mp:node:*").await {
            times.extend([(node.clone(), "started"), (node, "seen")]);
        }
        for (key, time) in times {
            let _: i64 = place.ask(redis::cmd("HINCRBY").arg(key).arg(time).arg(-ms)).await;
        }
        for key in place.keys("lock:tenant:*").await {
            let expires: i64 = place.ask(redis::cmd("PEXPIRETIME").arg(&key)).await;
            let _: i64 = place.ask(redis::cmd("PEXPIREAT").arg(&key).arg(expires - ms)).await;
        }
    }

    async fn damage_snapshots(&self) {
        let place = self.place();
        let keys = place.keys("mp:snapshot:*").await;
        assert_eq!(keys.len(), 1, "there was a snapshot");
        let body: String = place.ask(redis::cmd("HGET").arg(&keys[0]).arg("body")).await;
        let damaged = body.replace("COMPLETED", "COMPLETE");
        let _: i64 = place.ask(redis::cmd("HSET").arg(&keys[0]).arg("body").arg(damaged)).await;
    }

    /// The creation of a task is known without a row.
    async fn damage(&self, damage: Damage<'_>) -> bool {
        let place = self.place();
        let (Damage::Row { task, .. } | Damage::Definition { task }) = damage;
        for key in place.keys("mp:task:*").await {
            let id: String = place.ask(redis::cmd("HGET").arg(&key).arg("id")).await;
            if id != task {
                continue;
            }
            let Damage::Row { sequence, .. } = damage else {
                let body: String = place.ask(redis::cmd("HGET").arg(&key).arg("body")).await;
                let _: i64 = place.ask(redis::cmd("HSET").arg(&key).arg("body").arg(body + " ")).await;
                return true;
            };
            let log = key.replace("mp:task:", "mp:events:");
            let rows: Vec<String> = place.ask(redis::cmd("LRANGE").arg(&log).arg(0).arg(-1)).await;
            let wanted = rows.iter().position(|row| row.starts_with(&format!("{sequence} ")));
            let Some(index) = wanted else { return false };
            let damaged = format!("{} ", rows[index]);
            let _: String = place.ask(redis::cmd("LSET").arg(&log).arg(index).arg(damaged)).await;
            return true;
        }
        false
    }

    /// A history takes less than a second; MILEPOST_TEST_SEEDS asks for more of them, or for fewer.
    fn seeds(&self) -> u64 {
        std::env::var("MILEPOST_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
    }
}

macro_rules! tests {
    (() $($module:ident { $($case:ident),+ $(,)? })+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                if redis_server::is_missing() {
                    return;
                }
                milepost_store::conformance::run(&Redis::default(), stringify!($case)).await;
            }
        )+)+
    };
}
milepost_store::__conformance_cases!(tests());
