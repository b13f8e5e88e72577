//! A prefix of its own on the server that `MILEPOST_TEST_REDIS` names, and what redis-cli would see there.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod given;
pub(crate) mod proxy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// True, said loudly, when there is no server to test with; a failure where all tests have to run.
pub(crate) fn is_missing() -> bool {
    if std::env::var("MILEPOST_TEST_REDIS").is_ok() {
        return false;
    }
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "MILEPOST_TEST_REDIS is not set");
    eprintln!("SKIPPED: MILEPOST_TEST_REDIS is not set, so nothing was tested on Redis");
    true
}

/// Deletes its keys when the last of its clones is dropped.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
    _keys: Arc<Keys>,
}

struct Keys {
    server: String,
    prefix: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = std::env::var("MILEPOST_TEST_REDIS").expect("there is a server");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let name = format!("test-{}-{now}-{number}", std::process::id());
        let url = format!("{server}?prefix={name}");
        let prefix = format!("{name}:");
        let keys = Arc::new(Keys { server, prefix: prefix.clone() });
        Self { url, prefix, _keys: keys }
    }

    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, question: &redis::Cmd) -> T {
        let client = redis::Client::open(self._keys.server.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        question.query_async(&mut connection).await.unwrap()
    }

    /// Of keys with this pattern behind the prefix.
    pub(crate) async fn keys(&self, pattern: &str) -> Vec<String> {
        self.ask(redis::cmd("KEYS").arg(format!("{}{pattern}", self.prefix))).await
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let Ok(mut connection) = redis::Client::open(self.server.as_str()).and_then(|client| client.get_connection())
        else {
            return;
        };
        let pattern = format!("{}*", self.prefix);
        let mut cursor = 0_u64;
        loop {
            let scan = redis::cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(10_000).clone();
            let Ok((next, keys)) = scan.query::<(u64, Vec<String>)>(&mut connection) else { return };
            if !keys.is_empty() {
                let _: redis::RedisResult<i64> = redis::cmd("UNLINK").arg(keys).query(&mut connection);
            }
            cursor = next;
            if cursor == 0 {
                return;
            }
        }
    }
}
