//! Where tables go, looked at by clients that share nothing with the copier.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;

use crate::source::{Source, rows};
use crate::support::World;

static MADE: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone)]
pub(crate) enum Target {
    Sqlite { file: PathBuf },
    Postgres(Arc<Database>),
}

/// A database of its own on a server, gone with the test.
pub(crate) struct Database {
    server: String,
    url: String,
    name: String,
}

/// A table that can be seen: how many rows it has, and of which rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) rows: i64,
    pub(crate) rounds: Option<(i64, i64)>,
}

impl Target {
    /// A file, and a database on a PostgreSQL server if there is one; said loudly if there is none.
    pub(crate) fn all(test: &str) -> Vec<impl Fn(&World) -> Target + use<>> {
        let server = std::env::var("MILEPOST_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
        if server.is_none() {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "MILEPOST_TEST_POSTGRES is not set");
            eprintln!("SKIPPED {test} on PostgreSQL: MILEPOST_TEST_POSTGRES is not set");
        }
        let kinds = [Some(None), server.map(Some)].into_iter().flatten();
        let make = |server: Option<String>| {
            move |world: &World| match &server {
                None => Target::Sqlite { file: world.path().join("target.db") },
                Some(server) => Target::Postgres(Arc::new(Database::new(server))),
            }
        };
        kinds.map(make).collect()
    }

    /// As plans name it.
    pub(crate) fn url(&self) -> &str {
        match self {
            Target::Sqlite { .. } => "sqlite:target.db",
            Target::Postgres(database) => &database.url,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Target::Sqlite { .. } => "SQLite",
            Target::Postgres(_) => "PostgreSQL",
        }
    }

    /// None: there is no such table to be seen, or nobody is let in just now.
    pub(crate) fn see(&self, table: &str) -> Option<Seen> {
        let query = format!("SELECT count(*), min(round), max(round) FROM {table}");
        let seen = |rows, least: Option<i64>, most: Option<i64>| Seen { rows, rounds: least.zip(most) };
        match self {
            Target::Sqlite { .. } => {
                let found = self.open()?.query_row(&query, [], |row| Ok(seen(row.get(0)?, row.get(1)?, row.get(2)?)));
                match found {
                    Ok(seen) => Some(seen),
                    Err(error) if is_missing(&error) || error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                        None
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Target::Postgres(database) => database.ask(async |client| {
                let query = query.replace("min(round), max(round)", "min(round)::bigint, max(round)::bigint");
                match client.query_one(&query, &[]).await {
                    Ok(row) => Some(seen(row.get(0), row.get(1), row.get(2))),
                    Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => None,
                    Err(error) => panic!("{error}"),
                }
            }),
        }
    }

    pub(crate) fn tell(&self, statement: &str) {
        match self {
            Target::Sqlite { .. } => self.open().unwrap().execute_batch(statement).unwrap(),
            Target::Postgres(database) => database.ask(async |client| client.batch_execute(statement).await.unwrap()),
        }
    }

    /// As the source spells them.
    fn rows(&self, table: &str) -> Vec<String> {
        match self {
            Target::Sqlite { .. } => rows(&self.open().unwrap(), table),
            Target::Postgres(database) => database.ask(async |client| {
                let query = format!(
                    "SELECT id || '|' || round || '|' || name || '|' || coalesce(share::text, '-') || '|' ||
                         coalesce(remark, '-') || '|' || coalesce(upper(encode(data, 'hex')), '-') FROM {table} ORDER BY id"
                );
                client.query(&query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
            }),
        }
    }

    /// Every table has exactly its source's rows, and nothing unfinished is left.
    #[track_caller]
    pub(crate) fn must_equal(&self, source: &Source) {
        for table in source.tables() {
            let (expected, found) = (source.rows(table), self.rows(table));
            let differs = expected.iter().zip(&found).find(|(expected, found)| expected != found);
            assert_eq!(differs, None, "{table} differs from its source");
            assert_eq!(expected.len(), found.len(), "{table} has other rows than its source");
        }
        assert_eq!(self.unfinished(), Vec::<String>::new());
    }

    /// Tables beside targets.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let names: Vec<String> = match self {
            Target::Sqlite { .. } => {
                let connection = self.open().unwrap();
                let mut query = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
                query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
            }
            Target::Postgres(database) => database.ask(async |client| {
                let query = "SELECT relname::text FROM pg_class WHERE relkind = 'r'";
                client.query(query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
            }),
        };
        names.into_iter().filter(|name| name.contains("__mp_")).collect()
    }

    fn open(&self) -> Option<Connection> {
        let Target::Sqlite { file } = self else { return None };
        // Not made by looking at it.
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        Some(connection)
    }
}

fn is_missing(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table")
}

impl Database {
    fn new(server: &str) -> Self {
        let name = format!("milepost_sync_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (host, _) = server.rsplit_once('/').expect("it names a database");
        let database = Self { server: server.to_owned(), url: format!("{host}/{name}"), name };
        database.order("CREATE DATABASE", "");
        database
    }

    fn order(&self, what: &str, how: &str) {
        let order = format!("{what} {}{how}", self.name);
        with_client(&self.server, async |client| client.batch_execute(&order).await.unwrap());
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(&tokio_postgres::Client) -> T) -> T {
        with_client(&self.url, question)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.order("DROP DATABASE", " WITH (FORCE)");
    }
}

fn with_client<T>(url: &str, question: impl AsyncFnOnce(&tokio_postgres::Client) -> T) -> T {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = question(&client).await;
        connection.abort();
        answer
    })
}

/// Looks at the tables again and again from a thread of its own, until one is not whole or it is told to end.
pub(crate) struct Watcher {
    ended: Arc<AtomicBool>,
    /// How often it has looked at all of them, or what was wrong.
    thread: JoinHandle<Result<usize, String>>,
}

impl Watcher {
    pub(crate) fn start(target: &Target, tables: &[String], rows: i64) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (target, tables, told) = (target.clone(), tables.to_vec(), Arc::clone(&ended));
        let look = move || {
            let mut looks = 0;
            while !told.load(Ordering::Relaxed) {
                for table in &tables {
                    if let Some(seen) = target.see(table).filter(|seen| !is_whole(seen, rows)) {
                        return Err(format!("{table} was seen as {seen:?}"));
                    }
                }
                looks += 1;
                // Leaves the copier some of the processor.
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(looks)
        };
        Self { ended, thread: std::thread::spawn(look) }
    }

    /// How often it has looked; never was one of them not whole.
    pub(crate) fn end(self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().unwrap()
    }
}

/// All rows, of one round.
pub(crate) fn is_whole(seen: &Seen, rows: i64) -> bool {
    seen.rows == rows && seen.rounds.is_some_and(|(least, most)| least == most)
}
