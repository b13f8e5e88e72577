//! A schema of its own for each test, on a real server.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::NoTls;

const VARIABLE: &str = "MILEPOST_TEST_POSTGRES";

/// Whether there is a server to test on. Without one a test says so loudly, and under `CI=true` it fails.
pub(crate) fn is_there(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{VARIABLE} is not set: `{test}` cannot be left out here");
    eprintln!("SKIPPED `{test}`: {VARIABLE} is not set; `./dev/services up postgres` starts a server and says how");
    false
}

/// Where a test's tables are, and the address of a store in them.
pub(crate) struct Schema {
    name: String,
    pub(crate) url: String,
    server: String,
}

impl Schema {
    pub(crate) async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = std::env::var(VARIABLE).expect("a test asks first whether there is a server");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{count}", std::process::id());
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-c%20search_path%3D{name}");
        let schema = Self { name, url, server };
        schema.run("DROP SCHEMA IF EXISTS @ CASCADE").await;
        schema
    }

    /// Runs a statement that says `@` for the schema; answers the rows it changed.
    pub(crate) async fn run(&self, sql: &str) -> u64 {
        let (client, connection) = tokio_postgres::connect(&self.server, NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let sql = sql.replace('@', &self.name);
        let changed = client.execute_typed(&sql, &[]).await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
        changed
    }

    pub(crate) async fn remove(self) {
        self.run("DROP SCHEMA IF EXISTS @ CASCADE").await;
    }
}
