//! Where tables come from: a SQLite file whose rows all say of which round they are.

use rusqlite::Connection;

use crate::support::World;

pub(crate) const FILE: &str = "source.db";
pub(crate) const URL: &str = "sqlite:source.db";

pub(crate) struct Source {
    connection: Connection,
    tables: Vec<String>,
}

impl Source {
    pub(crate) fn new(world: &World, tables: Vec<String>, rows: u32) -> Self {
        let connection = Connection::open(world.path().join(FILE)).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; BEGIN").unwrap();
        for table in &tables {
            let make = format!(
                "CREATE TABLE {table} (id INTEGER PRIMARY KEY, round INTEGER NOT NULL, name VARCHAR(40) NOT NULL,
                     share DOUBLE, remark TEXT, data BLOB);
                 CREATE INDEX {table}_by_name ON {table} (name);
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
                 INSERT INTO {table} SELECT i * 3, 1, 'name ' || (i % 97), i + 0.5,
                     CASE WHEN i % 3 THEN 'größer 🚚 ' || i END, CASE WHEN i % 5 THEN randomblob(i % 40) END FROM n"
            );
            connection.execute_batch(&make).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        Self { connection, tables }
    }

    pub(crate) fn tables(&self) -> &[String] {
        &self.tables
    }

    pub(crate) fn tell(&self, statement: &str) {
        self.connection.execute_batch(statement).unwrap();
    }

    /// Every row of every table changes.
    pub(crate) fn rewrite(&self, round: u32) {
        let updates = self.tables.iter().map(|table| format!("UPDATE {table} SET round = {round};"));
        self.tell(&format!("BEGIN; {} COMMIT", updates.collect::<String>()));
    }

    pub(crate) fn rows(&self, table: &str) -> Vec<String> {
        rows(&self.connection, table)
    }
}

/// Every value of every row, in one spelling that `Target` has as well.
pub(crate) fn rows(connection: &Connection, table: &str) -> Vec<String> {
    let query = format!(
        "SELECT id || '|' || round || '|' || name || '|' || coalesce(share, '-') || '|' || coalesce(remark, '-') || '|' ||
             CASE WHEN data IS NULL THEN '-' ELSE hex(data) END FROM {table} ORDER BY id"
    );
    let mut query = connection.prepare(&query).unwrap();
    query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}
