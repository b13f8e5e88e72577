//! A database of its own on a real server, gone with the test, and asked by clients that share nothing with the copier.

use std::sync::atomic::{AtomicUsize, Ordering};

use mysql_async::prelude::Queryable;
use tokio_postgres::error::SqlState;

static MADE: AtomicUsize = AtomicUsize::new(0);
const NO_SUCH_TABLE: u16 = 1146;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Product {
    Postgres,
    Mysql,
}

impl Product {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Product::Postgres => "PostgreSQL",
            Product::Mysql => "MySQL",
        }
    }

    /// Where the tests' server is, if there is one.
    pub(crate) fn server(self, test: &str) -> Option<String> {
        let variable = match self {
            Product::Postgres => "MILEPOST_TEST_POSTGRES",
            Product::Mysql => "MILEPOST_TEST_MYSQL",
        };
        let server = std::env::var(variable).ok().filter(|url| !url.is_empty());
        if server.is_none() {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{variable} is not set");
            eprintln!("SKIPPED {test} on {}: {variable} is not set", self.name());
        }
        server
    }
}

pub(crate) struct Database {
    product: Product,
    server: String,
    url: String,
    name: String,
}

impl Database {
    pub(crate) fn new(product: Product, server: &str) -> Self {
        let name = format!("milepost_sync_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (host, _) = server.rsplit_once('/').expect("it names a database");
        let database = Self { product, server: server.to_owned(), url: format!("{host}/{name}"), name };
        database.order("CREATE DATABASE", "");
        database
    }

    pub(crate) fn product(&self) -> Product {
        self.product
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How many rows a table has, and the least and the last of their rounds. None: there is no such table.
    pub(crate) fn see(&self, table: &str) -> Option<(i64, Option<i64>, Option<i64>)> {
        match self.product {
            Product::Postgres => postgres(&self.url, async |client| {
                let query = format!("SELECT count(*), min(round)::bigint, max(round)::bigint FROM {table}");
                match client.query_one(&query, &[]).await {
                    Ok(row) => Some((row.get(0), row.get(1), row.get(2))),
                    Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => None,
                    Err(error) => panic!("{error}"),
                }
            }),
            Product::Mysql => mysql(&self.url, async |client| {
                let query = format!("SELECT count(*), min(round), max(round) FROM {table}");
                match client.query_first(query).await {
                    Ok(seen) => seen,
                    Err(mysql_async::Error::Server(error)) if error.code == NO_SUCH_TABLE => None,
                    Err(error) => panic!("{error}"),
                }
            }),
        }
    }

    pub(crate) fn tell(&self, statement: &str) {
        match self.product {
            Product::Postgres => postgres(&self.url, async |client| client.batch_execute(statement).await.unwrap()),
            Product::Mysql => mysql(&self.url, async |client| client.query_drop(statement).await.unwrap()),
        }
    }

    /// Every value of every row, as the source spells them.
    pub(crate) fn rows(&self, table: &str) -> Vec<String> {
        match self.product {
            Product::Postgres => self.texts(&format!(
                "SELECT id || '|' || round || '|' || name || '|' || coalesce(share::text, '-') || '|' ||
                     coalesce(remark, '-') || '|' || coalesce(upper(encode(data, 'hex')), '-') FROM {table} ORDER BY id"
            )),
            Product::Mysql => self.texts(&format!(
                "SELECT concat_ws('|', id, round, name, coalesce(share, '-'), coalesce(remark, '-'), coalesce(hex(data), '-'))
                 FROM {table} ORDER BY id"
            )),
        }
    }

    pub(crate) fn tables(&self) -> Vec<String> {
        match self.product {
            Product::Postgres => self.texts("SELECT relname::text FROM pg_class WHERE relkind = 'r'"),
            Product::Mysql => {
                self.texts("SELECT table_name FROM information_schema.tables WHERE table_schema = database()")
            }
        }
    }

    fn texts(&self, query: &str) -> Vec<String> {
        match self.product {
            Product::Postgres => postgres(&self.url, async |client| {
                client.query(query, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
            }),
            Product::Mysql => mysql(&self.url, async |client| client.query(query).await.unwrap()),
        }
    }

    fn order(&self, what: &str, how: &str) {
        let order = format!("{what} {}{how}", self.name);
        match self.product {
            Product::Postgres => postgres(&self.server, async |client| client.batch_execute(&order).await.unwrap()),
            Product::Mysql => mysql(&self.server, async |client| client.query_drop(&order).await.unwrap()),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match self.product {
            Product::Postgres => self.order("DROP DATABASE", " WITH (FORCE)"),
            Product::Mysql => self.order("DROP DATABASE", ""),
        }
    }
}

fn postgres<T>(url: &str, question: impl AsyncFnOnce(&tokio_postgres::Client) -> T) -> T {
    at_once(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = question(&client).await;
        connection.abort();
        answer
    })
}

fn mysql<T>(url: &str, question: impl AsyncFnOnce(&mut mysql_async::Conn) -> T) -> T {
    at_once(async {
        let mut client = mysql_async::Conn::from_url(url).await.unwrap();
        let answer = question(&mut client).await;
        client.disconnect().await.unwrap();
        answer
    })
}

fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
