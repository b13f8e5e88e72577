//! A database of one's own on the server that `MILEPOST_TEST_MYSQL` names, gone when the test is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};

/// The server, or none: then the test is passed over, loudly, and not at all where nobody would hear.
pub(crate) fn server() -> Option<String> {
    let url = std::env::var("MILEPOST_TEST_MYSQL").ok().filter(|url| !url.is_empty());
    if url.is_none() {
        assert!(std::env::var("CI").is_err(), "MILEPOST_TEST_MYSQL is not set, and nothing may be skipped here");
        eprintln!("SKIPPED: MILEPOST_TEST_MYSQL is not set, so nothing is tested on MySQL");
    }
    url
}

/// A name that nothing else has, here or in another process.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() % 1_000_000_000_000;
    format!("{prefix}_{}_{nanos}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug, Clone)]
pub(crate) struct Database(Arc<Dropped>);

#[derive(Debug)]
struct Dropped {
    server: String,
    name: String,
}

impl Database {
    pub(crate) async fn create(server: &str) -> Self {
        let database = Self(Arc::new(Dropped { server: server.to_owned(), name: unique("milepost") }));
        let mut connection = Conn::new(database.0.options(None)).await.unwrap();
        connection.query_drop(format!("CREATE DATABASE {}", database.0.name)).await.unwrap();
        connection.disconnect().await.unwrap();
        database
    }

    /// The address of the database, as a user would write it.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same by another way.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let server = self.0.options(None);
        let (user, password) = (server.user().unwrap_or("root"), server.pass().unwrap_or_default());
        format!("mysql://{user}:{password}@{}:{port}/{}", server.ip_or_hostname(), self.0.name)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.options(None).tcp_port()
    }

    /// Runs statements and answers how many rows the last of them changed.
    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let mut connection = Conn::new(self.0.options(Some(&self.0.name))).await.unwrap();
        connection.query_drop(sql).await.unwrap();
        let changed = connection.affected_rows();
        connection.disconnect().await.unwrap();
        changed
    }

    pub(crate) async fn ask<T: mysql_async::prelude::FromRow + Send + 'static>(&self, sql: &str) -> Vec<T> {
        let mut connection = Conn::new(self.0.options(Some(&self.0.name))).await.unwrap();
        let rows = connection.query(sql).await.unwrap();
        connection.disconnect().await.unwrap();
        rows
    }
}

impl Dropped {
    fn options(&self, database: Option<&str>) -> Opts {
        let options = Opts::from_url(&self.server).unwrap();
        OptsBuilder::from_opts(options).db_name(database).prefer_socket(false).into()
    }
}

impl Drop for Dropped {
    /// On a thread of its own: the test's runtime may be on its way out.
    fn drop(&mut self) {
        let (options, name) = (self.options(None), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = Conn::new(options).await.unwrap();
                connection.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await.unwrap();
            });
        });
        let _ = dropped.join();
    }
}
