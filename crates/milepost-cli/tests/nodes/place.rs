//! A store with nothing in it on one of the servers that `dev/services` starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// These tests keep both cores busy and stop servers, so there is one of them at a time.
static TURN: Mutex<()> = Mutex::new(());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Postgres,
    Mysql,
    Redis,
}

/// Where a test has the server to itself.
pub(crate) struct Place {
    pub(crate) url: String,
    backend: Backend,
    _turn: MutexGuard<'static, ()>,
}

impl Backend {
    fn variable(self) -> &'static str {
        match self {
            Backend::Postgres => "MILEPOST_TEST_POSTGRES",
            Backend::Mysql => "MILEPOST_TEST_MYSQL",
            Backend::Redis => "MILEPOST_TEST_REDIS",
        }
    }

    /// As `dev/services` calls it.
    fn service(self) -> &'static str {
        match self {
            Backend::Postgres => "postgres",
            Backend::Mysql => "mariadb",
            Backend::Redis => "redis",
        }
    }

    /// None when there is no such server: said loudly, and a failure where nobody would hear it.
    pub(crate) fn place(self, test: &str) -> Option<Place> {
        let variable = self.variable();
        let Some(server) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{variable} is not set: {test} cannot be left out");
            eprintln!("SKIPPED {test}: {variable} is not set; `./dev/services up` starts a server and says how");
            return None;
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("nodes_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = match self {
            Backend::Postgres => format!("{server}{separator}options=-c%20search_path%3D{name}"),
            Backend::Redis => format!("{server}{separator}prefix={name}"),
            Backend::Mysql => {
                let (address, _) = server.rsplit_once('/').expect("the address names a database");
                block_on(make_database(&server, &name));
                format!("{address}/{name}")
            }
        };
        Some(Place { url, backend: self, _turn: turn })
    }
}

async fn make_database(server: &str, name: &str) {
    use mysql_async::prelude::Queryable;
    let mut connection = mysql_async::Conn::from_url(server).await.unwrap();
    connection.query_drop(format!("CREATE DATABASE {name}")).await.unwrap();
    connection.disconnect().await.unwrap();
}

impl Place {
    /// Stops, starts or restarts the server, which keeps its data and its port.
    pub(crate) fn service(&self, verb: &str) {
        service(verb, self.backend.service());
    }

    /// Whether the server is one that may be stopped: somebody else's is left alone.
    pub(crate) fn is_ours(&self) -> bool {
        is_ours(self.backend.service(), self.backend.variable())
    }
}

/// As `dev/services` does it.
pub(crate) fn service(verb: &str, service: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = Command::new(root.join("dev/services")).args([verb, service]).output().unwrap();
    assert!(done.status.success(), "dev/services {verb} {service}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Whether the server that a variable names is one of `dev/services`.
pub(crate) fn is_ours(service: &str, variable: &str) -> bool {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let url = std::fs::read_to_string(root.join("target/services").join(service).join("url"));
    let ours = std::env::var(variable).unwrap_or_default();
    url.is_ok_and(|url| url.trim() == ours)
}

impl Drop for Place {
    fn drop(&mut self) {
        // The server itself goes when the tests are over, and its data with it; MySQL is slow with many tables.
        if self.backend == Backend::Mysql
            && let Some((server, name)) = self.url.rsplit_once('/')
        {
            let (server, name) = (format!("{server}/milepost"), name.to_owned());
            block_on(async move {
                use mysql_async::prelude::Queryable;
                if let Ok(mut connection) = mysql_async::Conn::from_url(server).await {
                    let _ = connection.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await;
                }
            });
        }
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}
