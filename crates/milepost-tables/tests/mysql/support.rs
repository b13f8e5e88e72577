//! A database of one's own on the server that `MILEPOST_TEST_MYSQL` names, gone when the test is over; and a copy by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milepost_tables::{
    Address, Batch, Begin, Begun, Cell, Database, Dialect, Finish, How, Kind, Load, Rejected, Rows, Scan, Shape, Table,
    TableError, TableName, Value, open,
};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder};

/// None: the test is passed over, loudly, and not at all where nobody would hear.
pub(crate) async fn place() -> Option<Place> {
    let Some(server) = std::env::var("MILEPOST_TEST_MYSQL").ok().filter(|url| !url.is_empty()) else {
        assert!(std::env::var("CI").is_err(), "MILEPOST_TEST_MYSQL is not set, and nothing may be skipped here");
        eprintln!("SKIPPED: MILEPOST_TEST_MYSQL is not set, so nothing is tested on MySQL");
        return None;
    };
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() % 1_000_000_000_000;
    let name = format!("tables_{}_{nanos}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let place = Place { server, name };
    let mut conn = Conn::new(place.options(None)).await.unwrap();
    conn.query_drop(format!("CREATE DATABASE {}", place.name)).await.unwrap();
    conn.disconnect().await.unwrap();
    Some(place)
}

pub(crate) struct Place {
    server: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) async fn open(&self) -> Arc<dyn Database> {
        let url = self.server.rsplit_once('/').unwrap().0;
        open(&format!("{url}/{}", self.name).parse::<Address>().unwrap()).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> Conn {
        let mut conn = Conn::new(self.options(Some(&self.name))).await.unwrap();
        let session = "SET time_zone = '+00:00', sql_mode = 'NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION'";
        conn.query_drop(session).await.unwrap();
        conn
    }

    /// Statements, each by itself.
    pub(crate) async fn run(&self, statements: &[&str]) {
        let mut conn = self.connect().await;
        for statement in statements {
            conn.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        conn.disconnect().await.unwrap();
    }

    pub(crate) async fn ask<T: FromRow + Send + 'static>(&self, sql: &str) -> Vec<T> {
        let mut conn = self.connect().await;
        let rows = conn.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        conn.disconnect().await.unwrap();
        rows
    }

    pub(crate) async fn tables(&self) -> Vec<String> {
        self.ask("SHOW TABLES").await
    }

    fn options(&self, database: Option<&str>) -> Opts {
        let options = Opts::from_url(&self.server).unwrap();
        OptsBuilder::from_opts(options).db_name(database).prefer_socket(false).into()
    }
}

impl Drop for Place {
    /// On a thread of its own: the test's runtime may be on its way out.
    fn drop(&mut self) {
        let (options, name) = (self.options(None), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut conn = Conn::new(options).await.unwrap();
                // Connections that the test's runtime has no more time to close may hold locks.
                let open = format!("SELECT id FROM information_schema.processlist WHERE db = '{name}'");
                for id in conn.query::<u64, _>(open).await.unwrap() {
                    let _ = conn.query_drop(format!("KILL {id}")).await;
                }
                conn.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await.unwrap();
            });
        });
        let _ = dropped.join();
    }
}

/// Everything of a table, by its own key, in batches of three.
pub(crate) fn scan(table: &Table) -> Scan {
    Scan {
        table: table.name.clone(),
        columns: table.columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect(),
        key: table.paging_key(),
        as_is: Vec::new(),
        after: None,
        until: None,
        filter: None,
        batch_rows: 3,
        batch_bytes: 1 << 20,
    }
}

pub(crate) async fn all(rows: &mut dyn Rows) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await.unwrap() {
        batches.push(batch);
    }
    batches
}

/// Every row that a scan finds.
pub(crate) async fn read(database: &dyn Database, scan: Scan) -> Vec<Vec<Value>> {
    let mut rows = database.read(scan).await.unwrap();
    let batches = all(rows.as_mut()).await;
    for batch in &batches {
        assert_eq!(batch.spoilt, []);
    }
    batches.iter().flat_map(values).collect()
}

pub(crate) fn values(batch: &Batch) -> Vec<Vec<Value>> {
    batch.iter().map(|row| row.iter().map(|cell| batch.value(*cell)).collect()).collect()
}

pub(crate) async fn table(database: &dyn Database, name: &str) -> Table {
    database.table(&TableName::new(name)).await.unwrap().unwrap_or_else(|| panic!("there is no {name}"))
}

pub(crate) fn load(copy: &str, token: &str, into: &str, columns: &[(&str, Kind)]) -> Load {
    let into: TableName = into.parse().unwrap();
    Load {
        copy: copy.to_owned(),
        run: 1,
        token: token.to_owned(),
        staging: into.beside(format!("{}__mp_{}", into.name, copy.len())),
        into,
        columns: columns.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect(),
    }
}

/// The load of a table as a whole.
pub(crate) fn load_of(token: &str, table: &Table, into: &str) -> Load {
    let columns: Vec<(&str, Kind)> =
        table.columns.iter().map(|column| (column.name.as_str(), column.kind.clone())).collect();
    load("copy", token, into, &columns)
}

pub(crate) fn shape(table: &Table, from: Dialect) -> Shape<'_> {
    Shape::Of { table, from }
}

pub(crate) async fn begin(database: &dyn Database, load: &Load, shape: Shape<'_>) -> Result<Begun, TableError> {
    database.begin(Begin { load, shape, go_on: false, fingerprint: "f" }).await
}

pub(crate) async fn go_on(database: &dyn Database, load: &Load, shape: Shape<'_>) -> Begun {
    database.begin(Begin { load, shape, go_on: true, fingerprint: "f" }).await.unwrap()
}

/// Begins, writes the batches, and commits each; says what was rejected.
pub(crate) async fn write(
    database: &dyn Database,
    load: &Load,
    shape: Shape<'_>,
    batches: &[Batch],
) -> Result<Vec<Rejected>, TableError> {
    let begun = begin(database, load, shape).await?;
    let mut writer = database.writer(load, &begun, true).await?;
    let mut rejected = Vec::new();
    for batch in batches {
        let bad = writer.write(batch).await?;
        writer.commit(None, bad.len() as u64).await?;
        rejected.extend(bad);
    }
    Ok(rejected)
}

pub(crate) async fn finish(database: &dyn Database, load: &Load, how: How) -> Result<(), TableError> {
    database.finish(Finish { load, how, indexes: &[] }).await
}

/// A whole copy within one database, as a source of the dialect would be copied.
pub(crate) async fn copy(database: &dyn Database, table: &Table, into: &str, from: Dialect) -> Vec<Rejected> {
    let mut rows = database.read(scan(table)).await.unwrap();
    let batches = all(rows.as_mut()).await;
    drop(rows);
    let load = load_of("token", table, into);
    let rejected = write(database, &load, shape(table, from), &batches).await.unwrap();
    database.add_indexes(&load, table).await.unwrap();
    finish(database, &load, How::Replace).await.unwrap();
    rejected
}

/// Rows of whole numbers and texts.
pub(crate) fn batch(rows: &[(i64, &str)]) -> Batch {
    let mut batch = Batch::new(2);
    for (number, text) in rows {
        batch.push(Cell::Int(*number));
        batch.push_text(text);
    }
    batch
}

/// `id` and `name`, of some other database.
pub(crate) fn people() -> Table {
    let column = |name: &str, kind: Kind| milepost_tables::Column {
        name: name.to_owned(),
        kind,
        native: String::new(),
        nullable: true,
        counts_up: false,
        generated: false,
        default: false,
    };
    Table {
        name: TableName::new("people"),
        columns: vec![
            column("id", Kind::Int { bits: 64, unsigned: false }),
            column("name", Kind::Text { length: Some(20) }),
        ],
        primary: vec![0],
        indexes: Vec::new(),
        rows: None,
        left_out: Vec::new(),
    }
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}
