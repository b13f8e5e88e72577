//! Connections: where they lead, how long they may take, and that none is used again in the middle of something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{BoxError, StoreError};

use super::address::take_search_path;

pub(super) const BACKEND: &str = "postgres";
const CONNECT: Duration = Duration::from_secs(5);
pub(super) const QUERY: Duration = Duration::from_secs(30);
/// Of the server's transactions that may wait for the one that writes.
const WRITERS: usize = 6;
const READERS: usize = 8;
/// For signs of life, which must not wait until others have written; one that gets no answer leaves room for the next.
const BEATS: usize = 2;

/// The session of this handle has ended: what it had is no longer its own.
pub(super) const SESSION_ENDED: &str = "MP001";

/// One statement's parameters. They are sent with their types, so that no statement has to be prepared first: behind a
/// pooler the next one may go to another server connection.
pub(super) type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The backend said no: what it was asked for, and its own words.
pub(super) fn unavailable<E: Into<BoxError>>(operation: &'static str) -> impl Fn(E) -> StoreError {
    move |error| StoreError::Unavailable { backend: BACKEND, operation, source: error.into() }
}

/// The schema that the store lives in.
#[derive(Debug, Clone)]
pub(super) struct Place {
    schema: String,
}

impl Place {
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn quoted(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// Names in full: `@.plans` is the table of this store.
    pub(super) fn sql(&self, text: &str) -> String {
        text.replace("@channel", &self.channel()).replace("@.", &format!("{}.", self.quoted()))
    }

    /// Where nodes of this store hear of each other. Another store on the same name costs a look, nothing else.
    pub(super) fn channel(&self) -> String {
        format!("milepost_{:08x}", crc32fast::hash(self.schema.as_bytes()))
    }

    pub(super) fn lock_key(&self) -> i64 {
        0x6d69_6c65_0000_0000 | i64::from(crc32fast::hash(self.schema.as_bytes()))
    }

    pub(super) async fn exists(&self, client: &Client) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
        let found = client.query_typed(sql, &[(&self.schema, Type::TEXT)]).await;
        Ok(!found.map_err(unavailable("look for its schema"))?.is_empty())
    }
}

/// How to reach the server: a pool each for what is written, for what is read, and for signs of life, none of which waits
/// for a connection of another.
#[derive(Debug)]
pub(super) struct Server {
    config: Config,
    pub(super) place: Place,
    writers: Pool,
    readers: Pool,
    beats: Pool,
    /// Statements that were sent, but for those of an import.
    pub(super) asked: AtomicU64,
}

impl Server {
    pub(super) async fn connect(url: &str) -> Result<Arc<Self>, StoreError> {
        let (address, search_path) = take_search_path(url);
        let mut config: Config =
            address.parse().map_err(|error: tokio_postgres::Error| StoreError::Format { detail: explain(&error) })?;
        config.connect_timeout(CONNECT).tcp_user_timeout(QUERY).keepalives_idle(QUERY);
        if config.get_application_name().is_none() {
            config.application_name("milepost");
        }
        let (writers, readers, beats) = (pool(&config, WRITERS)?, pool(&config, READERS)?, pool(&config, BEATS)?);
        let (place, asked) = (Place { schema: String::new() }, AtomicU64::new(0));
        let mut server = Self { config, place, writers, readers, beats, asked };
        server.place.schema = server.find_schema(search_path).await?;
        Ok(Arc::new(server))
    }

    async fn find_schema(&self, asked: Option<String>) -> Result<String, StoreError> {
        let sql = "SELECT coalesce(current_schema(), 'public')::text, current_setting('default_transaction_isolation')";
        let row = self.read("reach the server", sql, &[]).await?.remove(0);
        let isolation: String = row.get(1);
        if isolation != "read committed" {
            // Whoever waits for its turn to write must then see what the one before it has written.
            let detail = format!(
                "the default transaction isolation of this database is {isolation}; Milepost needs read committed"
            );
            return Err(StoreError::Format { detail });
        }
        Ok(asked.unwrap_or_else(|| row.get(0)))
    }

    /// A connection of its own, outside the pools.
    pub(super) async fn connection(
        &self,
    ) -> Result<(Client, impl Future<Output = ()> + Send + use<>, Notifications), StoreError> {
        let failed = unavailable("connect");
        let (told, notifications) = tokio::sync::mpsc::unbounded_channel();
        let tls = tls(&self.config)?;
        let connecting = async {
            match tls {
                None => self.config.connect(NoTls).await.map(|(client, connection)| (client, drive(connection, told))),
                Some(tls) => {
                    self.config.connect(tls).await.map(|(client, connection)| (client, drive(connection, told)))
                }
            }
        };
        let connected = tokio::time::timeout(CONNECT, connecting).await.map_err(&failed)?;
        let (client, driver) = connected.map_err(unavailable("connect"))?;
        Ok((client, driver, notifications))
    }

    pub(super) async fn read(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        ask(&self.readers, operation, &self.place.sql(sql), parameters).await
    }

    pub(super) async fn write(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.write_by(&self.writers, operation, sql, parameters).await
    }

    /// On a connection that only signs of life use.
    pub(super) async fn beat(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.write_by(&self.beats, operation, sql, parameters).await
    }

    async fn write_by(
        &self,
        pool: &Pool,
        operation: &'static str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = self.place.sql(sql);
        let mut tries = 0;
        loop {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match ask(pool, operation, &sql, parameters).await {
                Err(StoreError::Unavailable { source, .. }) if tries < 5 && was_rolled_back(&*source) => tries += 1,
                answer => return answer,
            }
        }
    }

    /// For the few writes that take several statements.
    pub(super) async fn writer(&self) -> Result<Object, StoreError> {
        checkout(&self.writers).await
    }
}

pub(super) type Notifications = tokio::sync::mpsc::UnboundedReceiver<tokio_postgres::Notification>;

type Driver = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Moves a connection's bytes, and passes on what it is notified of, until it is closed.
fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    told: tokio::sync::mpsc::UnboundedSender<tokio_postgres::Notification>,
) -> Driver
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                let _ = told.send(notification);
            }
        }
    })
}

fn pool(config: &Config, size: usize) -> Result<Pool, StoreError> {
    // Nothing has to be cleaned up: a statement is a transaction of its own, and of the few that take several the guard
    // rolls back what was not committed before the connection is used again.
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match tls(config)? {
        None => Manager::from_config(config.clone(), NoTls, manager_config),
        Some(tls) => Manager::from_config(config.clone(), tls, manager_config),
    };
    let built = Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(QUERY))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(CONNECT))
        .build();
    built.map_err(unavailable("set up its connections"))
}

/// TLS only where the address asks for it with `sslmode=require`; the server's certificate is then checked.
fn tls(config: &Config) -> Result<Option<MakeRustlsConnect>, StoreError> {
    match config.get_ssl_mode() {
        SslMode::Require => {}
        _ => return Ok(None),
    }
    let file = std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| "/etc/ssl/certs/ca-certificates.crt".to_owned());
    let mut roots = rustls::RootCertStore::empty();
    let failed = unavailable("read the certificates that this machine trusts");
    let certificates = CertificateDer::pem_file_iter(&file).map_err(|error| failed(format!("{file}: {error}")))?;
    roots.add_parsable_certificates(certificates.flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unavailable("set up TLS"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}

async fn checkout(pool: &Pool) -> Result<Object, StoreError> {
    pool.get().await.map_err(unavailable("connect"))
}

/// One statement, and a transaction of its own. A connection whose answer did not come in time is not used again.
async fn ask(
    pool: &Pool,
    operation: &'static str,
    sql: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<Row>, StoreError> {
    let client = checkout(pool).await?;
    match tokio::time::timeout(QUERY, client.query_typed(sql, parameters)).await {
        Ok(answer) => answer.map_err(unavailable(operation)),
        Err(elapsed) => {
            drop(Object::take(client));
            Err(unavailable(operation)(elapsed))
        }
    }
}

/// A deadlock or a serialization failure: the server has undone all of it, so it can be sent again.
fn was_rolled_back(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(code(error), Some("40001" | "40P01"))
}

fn code<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let error = error.downcast_ref::<tokio_postgres::Error>()?;
    error.code().map(|state| state.code())
}

/// Whether the statement was refused because this handle's session is over.
pub(super) fn session_has_ended(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { source, .. } if code(&**source) == Some(SESSION_ENDED))
}

fn explain(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("this is no address of a PostgreSQL server: {error}{cause}")
}
