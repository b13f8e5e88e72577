//! Two databases in a folder, somebody who watches, and a database that is tampered with.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_tables::{
    Address, Begin, Begun, Copied, Copy, Database, Dialect, Finish, IfExists, Limits, Listed, Load, Mark, OnRowError,
    Resume, Rows, Scan, Table, TableError, TableName, Verify, Watch, Writer, copy, open,
};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct World {
    dir: TempDir,
    pub(crate) source: Connection,
    pub(crate) target: Connection,
}

impl World {
    /// With `people`: id, name, age.
    pub(crate) fn new(people: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let connection = Connection::open(dir.path().join(name)).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
            connection.pragma_update(None, "journal_mode", "WAL").unwrap();
            connection
        };
        let world = Self { source: open("source.db"), target: open("target.db"), dir };
        world.source.execute_batch("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)").unwrap();
        world.add_people(1..=people);
        world
    }

    pub(crate) fn add_people(&self, ids: std::ops::RangeInclusive<u32>) {
        self.source.execute_batch("BEGIN").unwrap();
        for id in ids {
            let row = (id, format!("person {id}"), id % 90);
            self.source.execute("INSERT INTO people VALUES (?1, ?2, ?3)", row).unwrap();
        }
        self.source.execute_batch("COMMIT").unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn database(&self, name: &str) -> Arc<dyn Database> {
        open(&Address::Sqlite(self.path(name))).await.unwrap()
    }

    /// `people` from one to the other, ten rows at once.
    pub(crate) async fn job(&self) -> Copy {
        Copy {
            name: "task/copy".into(),
            run: 1,
            from: self.database("source.db").await,
            to: self.database("target.db").await,
            table: TableName::new("people"),
            into: TableName::new("people"),
            columns: None,
            types: Default::default(),
            filter: None,
            batch_rows: 10,
            if_exists: IfExists::default(),
            on_row_error: OnRowError::default(),
            rejected_file: Some(self.path("rejected.ndjson")),
            resume: Resume::default(),
            verify: Verify::default(),
            indexes: true,
            limits: Limits::default(),
        }
    }

    pub(crate) fn count(&self, table: &str) -> u32 {
        ask(&self.target, &format!("SELECT count(*) FROM \"{table}\""))
    }

    /// Names of all tables of the target.
    pub(crate) fn tables(&self) -> Vec<String> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        let mut statement = self.target.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    }

    /// Every row of `people` on both sides.
    pub(crate) fn both(&self) -> (Vec<Person>, Vec<Person>) {
        (people(&self.source), people(&self.target))
    }

    pub(crate) fn rejected(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path("rejected.ndjson")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) type Person = (i64, Option<String>, Option<i64>);

fn people(connection: &Connection) -> Vec<Person> {
    let mut statement = connection.prepare("SELECT id, name, age FROM people ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

pub(crate) fn ask<T: rusqlite::types::FromSql>(connection: &Connection, sql: &str) -> T {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// What somebody does when the copy tells how far it is.
type Act = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Watcher {
    pub(crate) progress: Mutex<Vec<(u64, u64)>>,
    pub(crate) lines: Mutex<Vec<String>>,
    act: Option<Act>,
}

impl Watcher {
    pub(crate) fn acting(act: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { act: Some(Box::new(act)), ..Self::default() }
    }

    pub(crate) fn progress(&self) -> Vec<(u64, u64)> {
        self.progress.lock().unwrap().clone()
    }

    pub(crate) fn said(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

impl Watch for Watcher {
    fn progress(&self, done: u64, total: u64) {
        self.progress.lock().unwrap().push((done, total));
        if let Some(act) = &self.act {
            act(done);
        }
    }

    fn say(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}

pub(crate) async fn run(job: Copy) -> Result<Copied, TableError> {
    copy(job, &Watcher::default(), &CancellationToken::new()).await
}

pub(crate) async fn watched(job: Copy, watcher: &Watcher) -> Result<Copied, TableError> {
    copy(job, watcher, &CancellationToken::new()).await
}

/// Ends it once so many rows are committed.
pub(crate) async fn broken_off(job: Copy, at: u64) -> Result<Copied, TableError> {
    let cancel = CancellationToken::new();
    let ends = cancel.clone();
    let watcher = Watcher::acting(move |done| {
        if done >= at {
            ends.cancel();
        }
    });
    copy(job, &watcher, &cancel).await
}

pub(crate) fn refused(result: Result<Copied, TableError>) -> String {
    match result {
        Err(TableError::Refused(reason)) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A target in which something happens just after the rows have appeared, or that forgets to clean up as a process
/// does that was killed.
pub(crate) struct Tampered {
    pub(crate) inner: Arc<dyn Database>,
    pub(crate) after_finish: Box<dyn Fn() -> Result<(), TableError> + Send + Sync>,
    pub(crate) discards: bool,
}

impl Tampered {
    pub(crate) fn new(
        inner: Arc<dyn Database>,
        after_finish: impl Fn() -> Result<(), TableError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { inner, after_finish: Box::new(after_finish), discards: true })
    }

    /// Nothing is dropped: as after a crash.
    pub(crate) fn forgetful(inner: Arc<dyn Database>) -> Arc<Self> {
        Arc::new(Self { inner, after_finish: Box::new(|| Ok(())), discards: false })
    }
}

impl std::fmt::Debug for Tampered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tampered")
    }
}

#[async_trait]
impl Database for Tampered {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }
    async fn tables(&self) -> Result<Vec<Listed>, TableError> {
        self.inner.tables().await
    }
    async fn table(&self, name: &TableName) -> Result<Option<Table>, TableError> {
        self.inner.table(name).await
    }
    async fn count(&self, name: &TableName, filter: Option<&str>) -> Result<u64, TableError> {
        self.inner.count(name, filter).await
    }
    async fn read(&self, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
        self.inner.read(scan).await
    }
    async fn mark(&self, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError> {
        self.inner.mark(copy, into).await
    }
    async fn begin(&self, begin: Begin<'_>) -> Result<Begun, TableError> {
        self.inner.begin(begin).await
    }
    async fn writer(&self, load: &Load, begun: &Begun, skip: bool) -> Result<Box<dyn Writer>, TableError> {
        self.inner.writer(load, begun, skip).await
    }
    async fn add_indexes(&self, load: &Load, table: &Table) -> Result<(), TableError> {
        self.inner.add_indexes(load, table).await
    }
    async fn finish(&self, finish: Finish<'_>) -> Result<(), TableError> {
        self.inner.finish(finish).await?;
        (self.after_finish)()
    }
    async fn discard(&self, load: &Load) -> Result<(), TableError> {
        if self.discards { self.inner.discard(load).await } else { Ok(()) }
    }
}

pub(crate) fn away() -> TableError {
    TableError::Away { database: "the target".into(), doing: "answer", reason: "the line is dead".into() }
}
