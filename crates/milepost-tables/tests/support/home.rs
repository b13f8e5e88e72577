//! A database of one's own, on a server that the environment names or in a file, gone when the test is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milepost_tables::{Address, Database, Dialect};
use mysql_async::prelude::Queryable;
use tokio_postgres::NoTls;

#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) dialect: Dialect,
    /// As a user would write it.
    pub(crate) url: String,
    /// Where to make and drop databases; none for a file.
    server: Option<String>,
    name: String,
    /// SQLite's file, and whatever else the test wants to keep.
    pub(crate) folder: tempfile::TempDir,
}

impl Home {
    /// None if there is no such server: then the test is passed over, loudly, and not at all where nobody would hear.
    pub(crate) async fn create(dialect: Dialect) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("copied_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let (url, server) = match dialect {
            Dialect::Sqlite => (format!("sqlite:{}", folder.path().join("tables.db").display()), None),
            Dialect::Postgres => at(server("MILEPOST_TEST_POSTGRES")?, &name),
            Dialect::Mysql => at(server("MILEPOST_TEST_MYSQL")?, &name),
        };
        let home = Self { dialect, url, server, name, folder };
        home.on_server("CREATE DATABASE @").await;
        Some(home)
    }

    /// As a copy sees it.
    pub(crate) async fn database(&self) -> Arc<dyn Database> {
        open(&self.url).await
    }

    /// The same by another way.
    pub(crate) async fn database_at(&self, port: u16) -> Arc<dyn Database> {
        open(&self.url.replace(&format!(":{}/", self.port()), &format!(":{port}/"))).await
    }

    pub(crate) fn port(&self) -> u16 {
        let (_, after) = self.url.rsplit_once(':').unwrap();
        after.split('/').next().unwrap().parse().unwrap()
    }

    /// Runs statements.
    pub(crate) async fn execute(&self, sql: &str) {
        run(self.dialect, &self.url, sql).await;
    }

    /// A number that the database answers.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match self.dialect {
            Dialect::Sqlite => sqlite(&self.url).query_row(sql, [], |row| row.get(0)).unwrap(),
            Dialect::Postgres => {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
                tokio::spawn(connection);
                client.query_one(sql, &[]).await.unwrap().get(0)
            }
            Dialect::Mysql => {
                let mut connection = mysql_async::Conn::from_url(&self.url).await.unwrap();
                let answer = connection.query_first(sql).await.unwrap().unwrap();
                connection.disconnect().await.unwrap();
                answer
            }
        }
    }

    /// How many tables there are that no copy has finished.
    pub(crate) async fn unfinished(&self) -> i64 {
        let catalogue = match self.dialect {
            Dialect::Sqlite => "sqlite_master WHERE type = 'table' AND name",
            Dialect::Postgres => "pg_tables WHERE tablename",
            Dialect::Mysql => "information_schema.tables WHERE table_schema = database() AND table_name",
        };
        self.number(&format!("SELECT count(*) FROM {catalogue} LIKE '%|_|_mp%' ESCAPE '|'")).await
    }

    /// A statement that says `@` for the database, from outside of it.
    async fn on_server(&self, sql: &str) {
        if let Some(server) = &self.server {
            run(self.dialect, server, &sql.replace('@', &self.name)).await;
        }
    }
}

impl Drop for Home {
    /// On a thread of its own: the test's runtime may be on its way out.
    fn drop(&mut self) {
        let Some(server) = self.server.clone() else { return };
        let (dialect, name) = (self.dialect, self.name.clone());
        let force = if dialect == Dialect::Postgres { " WITH (FORCE)" } else { "" };
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(dialect, &server, &format!("DROP DATABASE IF EXISTS {name}{force}")));
        });
        let _ = dropped.join();
    }
}

async fn open(url: &str) -> Arc<dyn Database> {
    let address: Address = url.parse().unwrap();
    milepost_tables::open(&address).await.unwrap()
}

/// A URL with another database, and the URL.
fn at(server: String, name: &str) -> (String, Option<String>) {
    let (before, _) = server.rsplit_once('/').unwrap();
    (format!("{before}/{name}"), Some(server))
}

fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        assert!(std::env::var("CI").is_err(), "{variable} is not set, and nothing may be skipped here");
        eprintln!("SKIPPED: {variable} is not set; `./dev/services up` starts a server and says how");
    }
    url
}

fn sqlite(url: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    connection
}

async fn run(dialect: Dialect, url: &str, sql: &str) {
    match dialect {
        Dialect::Sqlite => sqlite(url).execute_batch(sql).unwrap(),
        Dialect::Postgres => {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
            drop(client);
            driver.await.unwrap().unwrap();
        }
        Dialect::Mysql => {
            let mut connection = mysql_async::Conn::from_url(url).await.unwrap();
            connection.query_drop(sql).await.unwrap();
            connection.disconnect().await.unwrap();
        }
    }
}
