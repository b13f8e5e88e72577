//! What tables there are, and what each looks like.

use mysql_async::{Conn, Row, from_value_opt, prelude::FromValue};

use crate::database::{Listed, MARKS, UNFINISHED};
use crate::error::TableError;
use crate::table::{Column, Kind, Table, TableName};

use super::connect::Server;
use super::indexes::{self, Indexes};
use super::sql;
use super::types::{Described, Native};

const LOOK: &str = "look at";

/// A table with all that reading from it and writing to it needs to know.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) table: Table,
    /// Of the table's columns.
    pub(super) natives: Vec<Native>,
    /// `InnoDB`, mostly.
    pub(super) engine: String,
}

impl Known {
    pub(super) fn position(&self, column: &str) -> Option<usize> {
        self.table.columns.iter().position(|known| known.name.eq_ignore_ascii_case(column))
    }
}

pub(super) async fn tables(server: &Server, conn: &mut Conn) -> Result<Vec<Listed>, TableError> {
    let sql = "SELECT TABLE_NAME, TABLE_ROWS, DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES \
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY TABLE_NAME";
    let rows: Vec<(String, Option<u64>, Option<u64>)> = server.ask(conn, "list its tables", "", sql).await?;
    let ours = |name: &str| name == MARKS || name.contains(UNFINISHED);
    let rows = rows.into_iter().filter(|(name, ..)| !ours(name));
    Ok(rows.map(|(name, rows, bytes)| Listed { name: TableName::new(name), rows, bytes }).collect())
}

pub(super) async fn table(server: &Server, conn: &mut Conn, name: &TableName) -> Result<Option<Known>, TableError> {
    let shown = name.to_string();
    let whose = format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", sql::schema(name), sql::text(&name.name));
    let sql =
        format!("SELECT TABLE_TYPE, ENGINE, TABLE_ROWS, CREATE_OPTIONS FROM information_schema.TABLES WHERE {whose}");
    type Row = (String, Option<String>, Option<u64>, Option<String>);
    let found: Vec<Row> = server.ask(conn, LOOK, &shown, &sql).await?;
    let Some((kind, engine, rows, options)) = found.into_iter().next() else { return Ok(None) };
    if kind.contains("VIEW") {
        let reason = format!("{shown} in {} is a view; only tables are copied", server.name);
        return Err(TableError::Refused(reason));
    }
    let mut left_out = Vec::new();
    if options.is_some_and(|options| options.contains("partitioned")) {
        left_out.push("partitions".to_owned());
    }
    let checks = checks(server, conn, name).await?;
    let is_json =
        |column: &str| checks.iter().any(|(_, clause)| *clause == format!("json_valid({})", sql::name(column)));
    let (mut columns, mut natives) = (Vec::new(), Vec::new());
    for described in described(server, conn, name).await? {
        let (column, native) = described.known(is_json(&described.name));
        left_out.extend(described.has_default.then(|| format!("default of column {}", column.name)));
        columns.push(column);
        natives.push(native);
    }
    let Indexes { primary, indexes, left_out: others } = indexes::of(server, conn, name, &columns).await?;
    left_out.extend(others);
    let json = |clause: &str| clause.starts_with("json_valid(");
    left_out.extend(checks.iter().filter(|(_, clause)| !json(clause)).map(|(name, _)| format!("check {name}")));
    left_out.extend(belongings(server, conn, name).await?);
    let table = Table { name: name.clone(), columns, primary, indexes, rows, left_out };
    Ok(Some(Known { table, natives, engine: engine.unwrap_or_default() }))
}

struct DescribedColumn {
    name: String,
    described: Described,
    nullable: bool,
    extra: String,
    has_default: bool,
}

impl DescribedColumn {
    /// MariaDB has no type for JSON, but a LONGTEXT with a check.
    fn known(&self, is_json: bool) -> (Column, Native) {
        let native = match self.described.native() {
            Native::Text(_) if is_json => Native::Json,
            native => native,
        };
        let spelled = if native == Native::Json { "json".to_owned() } else { self.described.spelled() };
        let extra = self.extra.to_ascii_lowercase();
        let column = Column {
            name: self.name.clone(),
            kind: native.kind(),
            native: spelled,
            nullable: self.nullable,
            counts_up: extra.contains("auto_increment"),
            generated: (extra.contains("generated") && !extra.contains("default_generated"))
                || extra.contains("virtual")
                || extra.contains("stored")
                || extra.contains("persistent"),
            default: self.has_default,
        };
        debug_assert!(column.kind != Kind::Json || native == Native::Json);
        (column, native)
    }
}

async fn described(server: &Server, conn: &mut Conn, name: &TableName) -> Result<Vec<DescribedColumn>, TableError> {
    let sql = format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH, \
         NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA, \
         COLUMN_DEFAULT IS NOT NULL AND COLUMN_DEFAULT <> 'NULL' \
         FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION",
        sql::schema(name),
        sql::text(&name.name)
    );
    let rows: Vec<Row> = server.ask(conn, LOOK, &name.to_string(), &sql).await?;
    let read = |mut row: Row| DescribedColumn {
        name: word(&mut row, 0),
        described: Described {
            data_type: word(&mut row, 1).to_ascii_lowercase(),
            column_type: word(&mut row, 2),
            length: cell(&mut row, 4),
            octets: cell(&mut row, 5),
            precision: cell(&mut row, 6),
            scale: cell(&mut row, 7),
            fraction: cell(&mut row, 8),
            character_set: cell(&mut row, 9),
            collation: cell(&mut row, 10),
        },
        nullable: word(&mut row, 3) == "YES",
        extra: word(&mut row, 11),
        has_default: cell(&mut row, 12).unwrap_or(false),
    };
    Ok(rows.into_iter().map(read).collect())
}

fn cell<T: FromValue>(row: &mut Row, at: usize) -> Option<T> {
    row.take::<mysql_async::Value, _>(at).and_then(|value| from_value_opt::<Option<T>>(value).ok().flatten())
}

fn word(row: &mut Row, at: usize) -> String {
    cell(row, at).unwrap_or_default()
}

/// Names and clauses. MySQL's clauses are of no interest, since it has a type for JSON.
async fn checks(server: &Server, conn: &mut Conn, name: &TableName) -> Result<Vec<(String, String)>, TableError> {
    let (schema, table) = (sql::schema(name), sql::text(&name.name));
    let sql = if server.facts(conn).await?.maria {
        format!(
            "SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS \
             WHERE CONSTRAINT_SCHEMA = {schema} AND TABLE_NAME = {table}"
        )
    } else {
        format!(
            "SELECT CONSTRAINT_NAME, '' FROM information_schema.TABLE_CONSTRAINTS \
             WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table} AND CONSTRAINT_TYPE = 'CHECK'"
        )
    };
    server.ask(conn, LOOK, &name.to_string(), &sql).await
}

/// Foreign keys and triggers, which are not copied.
async fn belongings(server: &Server, conn: &mut Conn, name: &TableName) -> Result<Vec<String>, TableError> {
    let (schema, table) = (sql::schema(name), sql::text(&name.name));
    let sql = format!(
        "SELECT CONCAT('foreign key ', CONSTRAINT_NAME) FROM information_schema.REFERENTIAL_CONSTRAINTS \
         WHERE CONSTRAINT_SCHEMA = {schema} AND TABLE_NAME = {table} UNION ALL \
         SELECT CONCAT('trigger ', TRIGGER_NAME) FROM information_schema.TRIGGERS \
         WHERE EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {table}"
    );
    server.ask(conn, LOOK, &name.to_string(), &sql).await
}

/// A foreign key of another table that refers to this one.
#[derive(Debug)]
pub(super) struct Referrer {
    pub(super) table: TableName,
    pub(super) name: String,
    /// Its columns, and those of this table that they refer to.
    pub(super) columns: Vec<(String, String)>,
}

pub(super) async fn referrers(server: &Server, conn: &mut Conn, name: &TableName) -> Result<Vec<Referrer>, TableError> {
    let (schema, table) = (sql::schema(name), sql::text(&name.name));
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_COLUMN_NAME \
         FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_SCHEMA = {schema} \
         AND REFERENCED_TABLE_NAME = {table} AND NOT (TABLE_SCHEMA = {schema} AND TABLE_NAME = {table}) \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION"
    );
    let rows: Vec<(String, String, String, String, String)> = server.ask(conn, LOOK, &name.to_string(), &sql).await?;
    let mut referrers: Vec<Referrer> = Vec::new();
    for (schema, table, key, column, refers_to) in rows {
        let table = TableName { schema: Some(schema), name: table };
        match referrers.last_mut() {
            Some(last) if last.table == table && last.name == key => last.columns.push((column, refers_to)),
            _ => referrers.push(Referrer { table, name: key, columns: vec![(column, refers_to)] }),
        }
    }
    Ok(referrers)
}
