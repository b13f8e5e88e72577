//! The connection: made again when it is lost, moved when the cluster says so, and never waited for without an end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::{Arg, AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use crate::error::StoreError;

use super::script::Script;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);

pub(super) fn unavailable(operation: &'static str) -> impl Fn(RedisError) -> StoreError {
    move |error| StoreError::Unavailable { backend: "redis", operation, source: error.into() }
}

/// One connection that all questions share.
pub(super) struct Link {
    /// Changed when a cluster says that our keys are elsewhere.
    client: Mutex<Client>,
    kept: tokio::sync::Mutex<Kept>,
    asked: AtomicU64,
}

#[derive(Default)]
struct Kept {
    connection: Option<MultiplexedConnection>,
    /// The last try to connect that failed: it is the answer to all who waited for it.
    failed: Option<(Instant, RedisError)>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("to", &self.client().get_connection_info().addr().to_string()).finish()
    }
}

impl Link {
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(unavailable("read the url"))?;
        Ok(Self { client: Mutex::new(client), kept: tokio::sync::Mutex::default(), asked: AtomicU64::new(0) })
    }

    /// Questions that were sent.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asks once. After an error of the connection the outcome is unknown, so that only the caller may ask again.
    pub(super) async fn ask(&self, question: &Cmd) -> Result<Value, RedisError> {
        let mut moves = 0;
        loop {
            let mut connection = self.connection().await?;
            self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = match connection.req_packed_command(question).await {
                Ok(Value::ServerError(error)) => Err(RedisError::from(error)),
                answer => answer,
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    // A question that was sent elsewhere was not answered there, and may be asked again.
                    if moves < 3 && self.follow(&error).await {
                        moves += 1;
                        continue;
                    }
                    let moved_on = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
                    if moved_on || error.is_unrecoverable_error() || error.is_timeout() || error.is_io_error() {
                        self.kept.lock().await.connection = None;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Runs a script, and teaches it to a server that does not know it.
    pub(super) async fn run(&self, script: &Script, question: &Cmd) -> Result<Value, RedisError> {
        match self.ask(question).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.ask(&with_text(question, script.text())).await
            }
            answer => answer,
        }
    }

    /// A connection of its own, to be called on.
    pub(super) async fn listen(&self, channel: &str) -> Result<PubSub, RedisError> {
        let client = self.client().clone();
        let connect = async {
            let mut listener = client.get_async_pubsub().await?;
            listener.subscribe(channel).await?;
            Ok(listener)
        };
        tokio::time::timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let asked = Instant::now();
        let mut kept = self.kept.lock().await;
        if let Some(connection) = &kept.connection {
            return Ok(connection.clone());
        }
        if let Some((_, error)) = kept.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER));
        let client = self.client().clone();
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                kept.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                kept.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// True when the keys are on another server of the cluster, and we are on our way there.
    async fn follow(&self, error: &RedisError) -> bool {
        let Some((address, _)) = error.redirect_node() else { return false };
        let Some((host, port)) = address.rsplit_once(':') else { return false };
        let Ok(port) = port.parse() else { return false };
        let info = self.client().get_connection_info().clone();
        let moved = info.clone().set_addr(redis::ConnectionAddr::Tcp(host.to_owned(), port));
        let Ok(client) = Client::open(moved) else { return false };
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        self.kept.lock().await.connection = None;
        true
    }

    fn client(&self) -> std::sync::MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same question with the script itself in the place of its name, which teaches it as well.
fn with_text(question: &Cmd, text: &str) -> Cmd {
    let mut spelt_out = redis::cmd("EVAL");
    spelt_out.arg(text);
    for argument in question.args_iter().skip(2) {
        if let Arg::Simple(bytes) = argument {
            spelt_out.arg(bytes);
        }
    }
    spelt_out
}

fn too_slow() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection within five seconds").into()
}
