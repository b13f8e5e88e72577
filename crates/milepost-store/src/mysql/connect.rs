//! Connections: how they are set up, how they are kept, and how long anything may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::StoreError;

use super::codec::{BACKEND, Sql, unavailable};

const TO_CONNECT: Duration = Duration::from_secs(5);
const TO_ANSWER: Duration = Duration::from_secs(30);
/// Seconds that a transaction may be left alone by its client, which holds everybody up meanwhile.
pub(super) const ALONE: u32 = 5;
/// Questions answered at once, and connections kept for them.
const AT_ONCE: usize = 8;

/// What every session of ours takes for granted. Nobody waits for a lock, or for a client that takes no answer, for long.
fn set_up() -> Vec<String> {
    vec![
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin".to_owned(),
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', \
         autocommit = 1, innodb_lock_wait_timeout = 20, net_write_timeout = 10"
            .to_owned(),
    ]
}

/// The server, and connections to it that wait for the next question.
#[derive(Debug)]
pub(super) struct Server {
    options: Opts,
    /// Where it is, without the password.
    pub(super) name: String,
    idle: Mutex<Vec<Conn>>,
    turns: Semaphore,
    /// Times that something was sent.
    pub(super) asked: AtomicU64,
}

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let options = Opts::from_url(url).map_err(|error| StoreError::Format {
            detail: format!("the store's address is not one of MySQL: {error}"),
        })?;
        let Some(database) = options.db_name() else {
            return Err(StoreError::Format {
                detail: "the store's address names no database; it is mysql://user:password@host:3306/database"
                    .to_owned(),
            });
        };
        let name = format!("mysql://{}:{}/{database}", options.ip_or_hostname(), options.tcp_port());
        let options = OptsBuilder::from_opts(options)
            .client_found_rows(true)
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .setup(set_up())
            .into();
        Ok(Self { options, name, idle: Mutex::default(), turns: Semaphore::new(AT_ONCE), asked: AtomicU64::new(0) })
    }

    pub(super) async fn connect(&self) -> Sql<Conn> {
        match timeout(TO_CONNECT, Conn::new(self.options.clone())).await {
            Ok(connection) => connection,
            Err(_) => Err(Error::Other(format!("{} did not answer within five seconds", self.name).into())),
        }
    }

    /// Asks something that changes nothing, or that may as well be asked twice: an idle connection may have died since
    /// it was last used, and then it is asked again on a new one.
    pub(super) async fn ask(&self, operation: &'static str, sql: &str) -> Result<Vec<Vec<Row>>, StoreError> {
        let unavailable = unavailable(operation);
        let closed = || StoreError::Unavailable { backend: BACKEND, operation, source: "the store is closed".into() };
        let _turn = self.turns.acquire().await.map_err(|_| closed())?;
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(mut connection) = kept {
            match run(&mut connection, sql).await {
                Ok(answer) => {
                    self.keep(connection);
                    return Ok(answer);
                }
                Err(error @ Error::Server(_)) if !is_goodbye(&error) => return Err(unavailable(error)),
                Err(_) => {}
            }
        }
        let mut connection = self.connect_to_read().await.map_err(&unavailable)?;
        let answer = run(&mut connection, sql).await.map_err(&unavailable)?;
        self.keep(connection);
        Ok(answer)
    }

    /// One question is one snapshot, however many statements it takes.
    pub(super) async fn look(&self, operation: &'static str, sql: &str) -> Result<Vec<Vec<Row>>, StoreError> {
        self.ask(operation, &format!("START TRANSACTION READ ONLY; {sql}; COMMIT")).await
    }

    async fn connect_to_read(&self) -> Sql<Conn> {
        let mut connection = self.connect().await?;
        run(&mut connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
        Ok(connection)
    }

    fn keep(&self, connection: Conn) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < AT_ONCE {
            idle.push(connection);
        }
    }
}

/// Sends statements in one go, and collects the rows of each that answers with some.
pub(super) async fn run(connection: &mut Conn, sql: &str) -> Sql<Vec<Vec<Row>>> {
    let answers = async {
        let mut result = connection.query_iter(sql).await?;
        let mut answers = Vec::new();
        loop {
            let has_rows = !result.columns_ref().is_empty();
            let rows: Vec<Row> = result.collect().await?;
            if has_rows {
                answers.push(rows);
            }
            if result.is_empty() {
                // The driver keeps an error of any statement but the first for whoever asks next: that must be us.
                result.drop_result().await?;
                return Ok(answers);
            }
        }
    };
    match timeout(TO_ANSWER, answers).await {
        Ok(answers) => answers,
        Err(_) => Err(Error::Other("there was no answer within thirty seconds".into())),
    }
}

/// The server ends the connection, for whatever reason of its own.
pub(super) fn is_goodbye(error: &Error) -> bool {
    // Shutting down, killed, idle for too long.
    matches!(error, Error::Server(server) if matches!(server.code, 1053 | 1077 | 1079 | 1927 | 3032 | 4031))
}

/// Two transactions stood in each other's way; the same again will do.
pub(super) fn is_collision(error: &Error) -> bool {
    matches!(error, Error::Server(server) if matches!(server.code, 1205 | 1213))
}
