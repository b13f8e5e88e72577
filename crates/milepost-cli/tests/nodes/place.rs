//! A store with nothing in it on one of the servers that `dev/services` starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

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

    /// Stops the server where it is, with all of its processes, until this is dropped.
    pub(crate) fn freeze(&self) -> Frozen {
        let pid = services().join(self.backend.service()).join("pid");
        let pid: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        // The first of them makes the others: once it stands still, there are no more.
        let mut frozen = Frozen(vec![pid]);
        signal(pid, Signal::STOP);
        frozen.0.extend(children_of(pid));
        frozen.0[1..].iter().for_each(|child| signal(*child, Signal::STOP));
        frozen
    }

    /// Whether the server is one that may be stopped: somebody else's is left alone.
    pub(crate) fn is_ours(&self) -> bool {
        is_ours(self.backend.service(), self.backend.variable())
    }
}

/// The processes of a server that stands still.
pub(crate) struct Frozen(Vec<i32>);

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|pid| signal(*pid, Signal::CONT));
    }
}

fn signal(pid: i32, signal: Signal) {
    // A child may have ended by itself.
    let _ = rustix::process::kill_process(Pid::from_raw(pid).expect("a process has a number"), signal);
}

fn children_of(parent: i32) -> Vec<i32> {
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may have any characters: state, parent.
        let parent_of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent_of == Some(parent)
    };
    processes.filter(is_child).collect()
}

fn services() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/services")
}

/// As `dev/services` does it.
pub(crate) fn service(verb: &str, service: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = Command::new(root.join("dev/services")).args([verb, service]).output().unwrap();
    assert!(done.status.success(), "dev/services {verb} {service}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Whether the server that a variable names is one of `dev/services`.
pub(crate) fn is_ours(service: &str, variable: &str) -> bool {
    let url = std::fs::read_to_string(services().join(service).join("url"));
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
