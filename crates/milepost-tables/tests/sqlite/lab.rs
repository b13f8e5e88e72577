//! Databases in a folder of their own, and the steps of a copy one by one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use milepost_tables::{
    Address, Batch, Begin, Begun, Column, Database, Dialect, Finish, How, Kind, Load, Scan, Shape, Table, TableName,
    Value, Writer, open,
};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

pub(crate) struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A database file that these statements have made.
    pub(crate) async fn made(&self, name: &str, sql: &str) -> Arc<dyn Database> {
        self.connection(name).execute_batch(sql).unwrap();
        self.database(name).await
    }

    pub(crate) async fn database(&self, name: &str) -> Arc<dyn Database> {
        open(&Address::Sqlite(self.path(name))).await.unwrap()
    }

    /// Somebody who is not Milepost.
    pub(crate) fn connection(&self, name: &str) -> Connection {
        let connection = Connection::open(self.path(name)).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }

    /// All that a query gives, a row a line.
    pub(crate) fn rows(&self, name: &str, sql: &str) -> Vec<String> {
        let connection = self.connection(name);
        let mut query = connection.prepare(sql).unwrap();
        let width = query.column_count();
        let shown = |value: ValueRef<'_>| match value {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(value) => value.to_string(),
            ValueRef::Real(value) => format!("{value:?}"),
            ValueRef::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
            ValueRef::Blob(bytes) => format!("{bytes:?}"),
        };
        let line = |row: &rusqlite::Row<'_>| {
            Ok((0..width).map(|place| shown(row.get_ref_unwrap(place))).collect::<Vec<_>>().join("|"))
        };
        query.query_map([], line).unwrap().map(Result::unwrap).collect()
    }
}

/// All columns as they are, in the order of the key.
pub(crate) fn scan(table: &Table) -> Scan {
    Scan {
        table: table.name.clone(),
        columns: columns(table),
        key: table.paging_key(),
        as_is: Vec::new(),
        after: None,
        until: None,
        filter: None,
        batch_rows: 1_000,
        batch_bytes: 1 << 20,
    }
}

pub(crate) async fn table(database: &Arc<dyn Database>, name: &str) -> Table {
    database.table(&TableName::new(name)).await.unwrap().expect("the table is there")
}

pub(crate) async fn batches(database: &Arc<dyn Database>, scan: Scan) -> Vec<Batch> {
    let mut rows = database.read(scan).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await.unwrap() {
        batches.push(batch);
    }
    batches
}

/// Every value of every row, none of which is spoilt.
pub(crate) async fn values(database: &Arc<dyn Database>, scan: Scan) -> Vec<Vec<Value>> {
    let batches = batches(database, scan).await;
    for batch in &batches {
        assert_eq!(batch.spoilt, []);
    }
    let rows = |batch: &Batch| {
        batch.iter().map(|row| row.iter().map(|cell| batch.value(*cell)).collect()).collect::<Vec<Vec<Value>>>()
    };
    batches.iter().flat_map(rows).collect()
}

/// A batch of rows, as a reader would deliver them.
pub(crate) fn batch(rows: &[Vec<Value>]) -> Batch {
    let mut batch = Batch::new(rows[0].len());
    for value in rows.iter().flatten() {
        match value {
            Value::Null => batch.push(milepost_tables::Cell::Null),
            Value::Bool(value) => batch.push(milepost_tables::Cell::Bool(*value)),
            Value::Int(value) => batch.push(milepost_tables::Cell::Int(*value)),
            Value::Uint(value) => batch.push(milepost_tables::Cell::Uint(*value)),
            Value::Float(value) => batch.push(milepost_tables::Cell::Float(*value)),
            Value::Text(value) => batch.push_text(value),
            Value::Bytes(value) => batch.push_bytes(value),
        }
    }
    batch
}

/// A table of another kind of database: the first column is its key.
pub(crate) fn foreign(name: &str, kinds: &[Kind]) -> Table {
    let column = |(place, kind): (usize, &Kind)| Column {
        name: format!("c{place}"),
        kind: kind.clone(),
        native: "of its own".into(),
        nullable: place > 0,
        counts_up: false,
        generated: false,
        default: false,
    };
    Table {
        name: TableName::new(name),
        columns: kinds.iter().enumerate().map(column).collect(),
        primary: vec![0],
        indexes: Vec::new(),
        rows: None,
        left_out: Vec::new(),
    }
}

pub(crate) const INTEGER: Kind = Kind::Int { bits: 64, unsigned: false };
pub(crate) const UNSIGNED: Kind = Kind::Int { bits: 64, unsigned: true };
pub(crate) const TEXT: Kind = Kind::Text { length: None };

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn columns(table: &Table) -> Vec<(String, Kind)> {
    table.columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect()
}

/// One attempt at a copy of `table` into a table of the same name.
pub(crate) fn load(table: &Table, token: &str) -> Load {
    Load {
        copy: format!("plan/{}", table.name),
        run: 1,
        token: token.into(),
        into: table.name.clone(),
        staging: table.name.beside(format!("{}__mp_1", table.name.name)),
        columns: columns(table),
    }
}

pub(crate) async fn begin(to: &Arc<dyn Database>, load: &Load, shape: Shape<'_>, go_on: bool) -> Begun {
    to.begin(Begin { load, shape, go_on, fingerprint: "of the shape" }).await.unwrap()
}

/// A new table for what comes from elsewhere, and a writer to it.
pub(crate) async fn writer_to_new(
    to: &Arc<dyn Database>,
    table: &Table,
    load: &Load,
    skip_bad_rows: bool,
) -> Box<dyn Writer> {
    let begun = begin(to, load, Shape::Of { table, from: Dialect::Postgres }, false).await;
    to.writer(load, &begun, skip_bad_rows).await.unwrap()
}

/// A new table with these rows, all of them committed, in its place.
pub(crate) async fn put(to: &Arc<dyn Database>, table: &Table, rows: &[Vec<Value>]) {
    let load = load(table, "token");
    let mut writer = writer_to_new(to, table, &load, false).await;
    assert_eq!(writer.write(&batch(rows)).await.unwrap(), []);
    writer.commit(None, 0).await.unwrap();
    drop(writer);
    finish(to, &load, How::Replace).await;
}

pub(crate) async fn finish(to: &Arc<dyn Database>, load: &Load, how: How) {
    to.finish(Finish { load, how, indexes: &[] }).await.unwrap();
}

/// A whole copy within SQLite.
pub(crate) async fn copy(from: &Arc<dyn Database>, to: &Arc<dyn Database>, name: &str) {
    let table = table(from, name).await;
    let load = load(&table, "token");
    let begun = begin(to, &load, Shape::Of { table: &table, from: Dialect::Sqlite }, false).await;
    let mut writer = to.writer(&load, &begun, false).await.unwrap();
    for batch in batches(from, scan(&table)).await {
        assert_eq!(batch.spoilt, []);
        assert_eq!(writer.write(&batch).await.unwrap(), []);
        writer.commit(None, 0).await.unwrap();
    }
    drop(writer);
    to.add_indexes(&load, &table).await.unwrap();
    to.finish(Finish { load: &load, how: How::Replace, indexes: &table.indexes }).await.unwrap();
}

/// The same, with an index of its second column.
pub(crate) fn with_index(table: &Table) -> Table {
    let index = milepost_tables::Index { name: "an_index".into(), unique: false, columns: vec![1] };
    Table { indexes: vec![index], ..table.clone() }
}
