//! Connections: how they are set up, and what the server is.

use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Opts, OptsBuilder};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::error::TableError;

use super::failure::{Failing, failed};

const TO_CONNECT: Duration = Duration::from_secs(10);

/// What every session takes for granted: UTC, 4-byte UTF-8, no value changed to fit, zero dates as they are, 0 as 0 in a
/// column that counts up, no end to a long statement, and no endless wait for a lock or for a batch that is slow to come.
const SESSION: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO', \
     /*M!100101 max_statement_time = 0, */ /*!80000 max_execution_time = 0, */ time_zone = '+00:00', autocommit = 1, \
     foreign_key_checks = 0, innodb_lock_wait_timeout = 30, lock_wait_timeout = 60, \
     net_read_timeout = 3600, net_write_timeout = 3600, wait_timeout = 86400";

#[derive(Debug)]
pub(super) struct Server {
    options: Opts,
    /// Where it is, without the password.
    pub(super) name: String,
    facts: OnceCell<Facts>,
}

/// What the server is, which does not change while a copy goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) maria: bool,
    /// The longest statement that it takes.
    pub(super) packet: usize,
    /// LOAD DATA LOCAL is allowed.
    pub(super) local_infile: bool,
}

impl Facts {
    /// Two texts are the same in it only if they are the same to the last space.
    pub(super) fn exact_collation(&self) -> &'static str {
        if self.maria { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" }
    }
}

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, TableError> {
        let options = Opts::from_url(url)
            .map_err(|error| TableError::Refused(format!("the address is not one of MySQL: {error}")))?;
        let Some(database) = options.db_name() else {
            return Err(TableError::Refused(
                "the address names no database; it is mysql://USER:PASSWORD@HOST:3306/DATABASE".to_owned(),
            ));
        };
        let name = format!("mysql://{}:{}/{database}", options.ip_or_hostname(), options.tcp_port());
        let options = OptsBuilder::from_opts(options)
            .client_found_rows(true)
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .stmt_cache_size(0)
            .setup(vec!["SET NAMES utf8mb4".to_owned(), SESSION.to_owned()])
            .into();
        Ok(Self { options, name, facts: OnceCell::new() })
    }

    pub(super) async fn connect(&self) -> Result<Conn, TableError> {
        let connected = match timeout(TO_CONNECT, Conn::new(self.options.clone())).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::Other("it did not answer within ten seconds".into())),
        };
        connected.map_err(failed(Failing { server: &self.name, doing: "connect", what: "" }))
    }

    pub(super) async fn facts(&self, conn: &mut Conn) -> Result<Facts, TableError> {
        let facts = self.facts.get_or_try_init(|| async {
            let sql = "SELECT VERSION(), @@max_allowed_packet, @@local_infile";
            let row: Option<(String, usize, bool)> = conn.query_first(sql).await?;
            let (version, packet, local_infile) = row.ok_or("it does not say what it is").map_err(box_up)?;
            Ok::<_, Error>(Facts { maria: version.contains("MariaDB"), packet, local_infile })
        });
        facts.await.copied().map_err(failed(Failing { server: &self.name, doing: "say what it is", what: "" }))
    }

    /// Ends another connection, whatever it does. That it has ended already is as good.
    pub(super) async fn kill(&self, conn: &mut Conn, id: u64) -> Result<(), TableError> {
        match conn.query_drop(format!("KILL CONNECTION {id}")).await {
            Err(Error::Server(error)) if error.code == NO_SUCH_CONNECTION => Ok(()),
            ended => ended.map_err(failed(Failing { server: &self.name, doing: "end a connection", what: "" })),
        }
    }

    pub(super) async fn ask<T: FromRow + Send + 'static>(
        &self,
        conn: &mut Conn,
        doing: &'static str,
        what: &str,
        sql: &str,
    ) -> Result<Vec<T>, TableError> {
        conn.query(sql).await.map_err(failed(Failing { server: &self.name, doing, what }))
    }

    /// Answers how many rows were concerned.
    pub(super) async fn tell(
        &self,
        conn: &mut Conn,
        doing: &'static str,
        what: &str,
        sql: &str,
    ) -> Result<u64, TableError> {
        conn.query_drop(sql).await.map_err(failed(Failing { server: &self.name, doing, what }))?;
        Ok(conn.affected_rows())
    }
}

const NO_SUCH_CONNECTION: u16 = 1094;

fn box_up(reason: &'static str) -> Error {
    Error::Other(reason.into())
}
