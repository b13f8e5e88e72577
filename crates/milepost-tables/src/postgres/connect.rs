//! Connections: how each of them speaks, and what it means that one has failed.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::Address;
use crate::error::TableError;
use crate::table::TableName;

use super::names::{Place, literal};

const CONNECT: Duration = Duration::from_secs(10);
/// What a connection that says nothing is given before it counts as lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Who waits longer for a lock gives up, and is tried again. An address or a server that says how long is believed.
const LOCK_SECONDS: u32 = 30;
/// By this name an attempt finds what an earlier one has left open on the server.
pub(super) const APPLICATION: &str = "milepost copy";

/// A server to connect to.
#[derive(Debug, Clone)]
pub(super) struct Server {
    config: Config,
    /// Without its password.
    shown: String,
}

/// Parameters with their types, so that a statement takes one round trip.
pub(super) type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, TableError> {
        let shown = Address::Postgres(url.to_owned()).to_string();
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            TableError::Refused(format!("`{shown}` is no address of a PostgreSQL server: {error}{cause}"))
        })?;
        config.connect_timeout(CONNECT).tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
        config.application_name(APPLICATION);
        Ok(Self { config, shown })
    }

    /// Whether the address itself says in which schemas to look.
    pub(super) fn names_schemas(&self) -> bool {
        self.config.get_options().is_some_and(|options| options.contains("search_path"))
    }

    pub(super) async fn connect(&self) -> Result<Session, TableError> {
        let away = |reason: String| TableError::Away { database: self.shown.clone(), doing: "connect", reason };
        let connecting = async {
            match tls(&self.config).map_err(TableError::Refused)? {
                None => {
                    let (client, connection) =
                        self.config.connect(NoTls).await.map_err(|error| self.failed("connect", &error))?;
                    Ok((client, tokio::spawn(async move { drop(connection.await) }).abort_handle()))
                }
                Some(tls) => {
                    let (client, connection) =
                        self.config.connect(tls).await.map_err(|error| self.failed("connect", &error))?;
                    Ok((client, tokio::spawn(async move { drop(connection.await) }).abort_handle()))
                }
            }
        };
        let (client, task) = match tokio::time::timeout(CONNECT, connecting).await {
            Ok(connected) => connected?,
            Err(_) => return Err(away(format!("it did not answer within {} s", CONNECT.as_secs()))),
        };
        let mut session = Session { client, task, server: self.clone(), schema: String::new() };
        session.speak().await?;
        Ok(session)
    }

    /// What a failure means for whoever has asked.
    pub(super) fn failed(&self, doing: &'static str, error: &tokio_postgres::Error) -> TableError {
        let reason = words(error);
        if passes(error) {
            TableError::Away { database: self.shown.clone(), doing, reason }
        } else {
            TableError::Refused(format!("{} could not {doing}: {reason}", self.shown))
        }
    }
}

/// One connection. It ends when this is dropped, whatever it is at.
pub(super) struct Session {
    pub(super) client: Client,
    task: AbortHandle,
    server: Server,
    /// The one that new tables are made in.
    pub(super) schema: String,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Else the rest of a large answer would still be fetched, for nobody.
        self.task.abort();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("server", &self.server.shown).field("schema", &self.schema).finish()
    }
}

impl Session {
    /// Agrees on how values are spelled.
    async fn speak(&mut self) -> Result<(), TableError> {
        let settings = format!(
            "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3;
             SET bytea_output = 'hex'; SET standard_conforming_strings = on; SET xmloption = 'content';
             SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
             SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', false) WHERE current_setting('lock_timeout') = '0'"
        );
        let (set, schema) = tokio::join!(
            self.client.batch_execute(&settings),
            self.client.query_typed("SELECT current_schema()::text", &[])
        );
        set.map_err(|error| self.failed("set up the connection", &error))?;
        let row = schema.map_err(|error| self.failed("set up the connection", &error))?.remove(0);
        self.schema = row.get::<_, Option<String>>(0).ok_or_else(|| {
            TableError::Refused(format!(
                "{}: none of the schemas in this connection's search_path is there; create one, or name another",
                self.shown()
            ))
        })?;
        Ok(())
    }

    /// One more to the same server.
    pub(super) async fn another(&self) -> Result<Session, TableError> {
        self.server.connect().await
    }

    /// The server, without its password.
    pub(super) fn shown(&self) -> &str {
        &self.server.shown
    }

    pub(super) fn failed(&self, doing: &'static str, error: &tokio_postgres::Error) -> TableError {
        self.server.failed(doing, error)
    }

    pub(super) fn place(&self, table: &TableName) -> Place {
        Place { schema: table.schema.clone().unwrap_or_else(|| self.schema.clone()), name: table.name.clone() }
    }

    pub(super) async fn ask(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, TableError> {
        self.client.query_typed(sql, parameters).await.map_err(|error| self.failed(doing, &error))
    }

    /// One statement or several, without an answer.
    pub(super) async fn run(&self, doing: &'static str, sql: &str) -> Result<(), TableError> {
        self.client.batch_execute(sql).await.map_err(|error| self.failed(doing, &error))
    }

    /// Makes whoever asks for it wait until this transaction ends.
    pub(super) async fn take_turn(&self, doing: &'static str, what: &str) -> Result<(), TableError> {
        let sql = format!("SELECT pg_advisory_xact_lock(hashtextextended({}, 7081))", literal(what));
        self.run(doing, &sql).await
    }
}

/// What the server said, with all that helps.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => {
            let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("{}{detail}{hint}", error.message())
        }
        None => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}

/// Whether the same may succeed later: connections, resources, shutdowns, locks. What is no answer of the server at all
/// is a broken connection.
fn passes(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return true };
    let code = code.code();
    matches!(&code[..2], "08" | "53" | "57" | "58") || matches!(code, "40001" | "40P01" | "55P03" | "25P03" | "25P04")
}

/// TLS where the address asks for it with `sslmode=require`; the server's certificate is then checked.
fn tls(config: &Config) -> Result<Option<MakeRustlsConnect>, String> {
    match config.get_ssl_mode() {
        SslMode::Require => {}
        _ => return Ok(None),
    }
    let file = std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| "/etc/ssl/certs/ca-certificates.crt".to_owned());
    let mut roots = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&file)
        .map_err(|error| format!("the certificates that this machine trusts cannot be read: {file}: {error}"))?;
    roots.add_parsable_certificates(certificates.flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}
