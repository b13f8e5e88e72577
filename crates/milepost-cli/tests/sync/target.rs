//! Where tables go, looked at by clients that share nothing with the copier.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::server::{Database, Product};
use crate::source::{Source, rows};
use crate::support::World;

#[derive(Clone)]
pub(crate) enum Target {
    Sqlite { file: PathBuf },
    Server(Arc<Database>),
}

/// A table that can be seen: how many rows it has, and of which rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) rows: i64,
    pub(crate) rounds: Option<(i64, i64)>,
}

impl Target {
    /// A file, and a database on each server that there is; said loudly if there is none.
    pub(crate) fn all(test: &str) -> Vec<impl Fn(&World) -> Target + use<>> {
        let servers = [Product::Postgres, Product::Mysql].map(|product| product.server(test).map(|url| (product, url)));
        let kinds = std::iter::once(None).chain(servers.into_iter().flatten().map(Some));
        let make = |server: Option<(Product, String)>| {
            move |world: &World| match &server {
                None => Target::Sqlite { file: world.path().join("target.db") },
                Some((product, url)) => Target::Server(Arc::new(Database::new(*product, url))),
            }
        };
        kinds.map(make).collect()
    }

    /// As plans name it.
    pub(crate) fn url(&self) -> &str {
        match self {
            Target::Sqlite { .. } => "sqlite:target.db",
            Target::Server(database) => database.url(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Target::Sqlite { .. } => "SQLite",
            Target::Server(database) => database.product().name(),
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
            Target::Server(database) => {
                let (rows, least, most) = database.see(table)?;
                Some(seen(rows, least, most))
            }
        }
    }

    pub(crate) fn tell(&self, statement: &str) {
        match self {
            Target::Sqlite { .. } => self.open().unwrap().execute_batch(statement).unwrap(),
            Target::Server(database) => database.tell(statement),
        }
    }

    /// As the source spells them.
    fn rows(&self, table: &str) -> Vec<String> {
        match self {
            Target::Sqlite { .. } => rows(&self.open().unwrap(), table),
            Target::Server(database) => database.rows(table),
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
            Target::Server(database) => database.tables(),
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
