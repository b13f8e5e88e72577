//! A schema of its own for each test, on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milepost_tables::{Address, Database, Kind, Scan, TableName, open};
use tokio_postgres::{NoTls, SimpleQueryMessage};

const VARIABLE: &str = "MILEPOST_TEST_POSTGRES";

/// Whether there is a server to test on. Without one a test says so loudly, and under `CI=true` it fails.
pub(crate) fn is_there(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{VARIABLE} is not set: `{test}` cannot be left out here");
    eprintln!("SKIPPED `{test}`: {VARIABLE} is not set; `./dev/services up postgres` starts a server and says how");
    false
}

/// Where a test's tables are. Statements say `@` for it.
pub(crate) struct Schema {
    pub(crate) name: String,
    server: String,
}

impl Schema {
    pub(crate) async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = std::env::var(VARIABLE).expect("a test asks first whether there is a server");
        let name = format!("tables_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let schema = Self { name, server };
        schema.run("DROP SCHEMA IF EXISTS @ CASCADE; CREATE SCHEMA @").await;
        schema
    }

    /// The database, with this schema as the one that connections are in.
    pub(crate) async fn database(&self) -> Arc<dyn Database> {
        self.database_with("").await
    }

    pub(crate) async fn database_with(&self, more_options: &str) -> Arc<dyn Database> {
        let separator = if self.server.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}options=-c%20search_path%3D{}{more_options}", self.server, self.name);
        let address: Address = url.parse().unwrap();
        open(&address).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.ask(sql).await;
    }

    /// Rows as text, columns divided by `|`.
    pub(crate) async fn ask(&self, sql: &str) -> Vec<String> {
        let (client, connection) = tokio_postgres::connect(&self.server, NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let sql = format!(
            "SET search_path = {0}; SET TimeZone = 'UTC'; SET lock_timeout = '20s'; {1}",
            self.name,
            sql.replace('@', &self.name)
        );
        let answer = client.simple_query(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL"));
                Some(cells.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        });
        let rows = rows.collect();
        drop(client);
        driver.await.unwrap().unwrap();
        rows
    }

    pub(crate) async fn one(&self, sql: &str) -> String {
        let mut rows = self.ask(sql).await;
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.remove(0)
    }

    pub(crate) async fn remove(self) {
        self.run("DROP SCHEMA IF EXISTS @ CASCADE").await;
    }
}

/// All columns of a table as they are, by its key.
pub(crate) async fn scan(database: &dyn Database, table: &str) -> Scan {
    let table = database.table(&TableName::new(table)).await.unwrap().expect("the table is there");
    Scan {
        table: table.name.clone(),
        key: table.paging_key(),
        columns: table.columns.into_iter().map(|column| (column.name, column.kind)).collect(),
        as_is: Vec::new(),
        after: None,
        until: None,
        filter: None,
        batch_rows: 2500,
        batch_bytes: 4 << 20,
    }
}

pub(crate) fn int() -> Kind {
    Kind::Int { bits: 64, unsigned: false }
}

pub(crate) fn text() -> Kind {
    Kind::Text { length: None }
}
