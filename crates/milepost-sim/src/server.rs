//! A real server, and a place of one's own on it for each schedule that is played there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milepost_store::{BoxError, Membership, Store, StoreError, StoreUrl};
use mysql_async::prelude::Queryable;
use tokio_postgres::NoTls;

/// A PostgreSQL, a MySQL or a Redis that may be made use of.
#[derive(Debug, Clone)]
pub struct Server {
    url: StoreUrl,
}

impl Server {
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = StoreUrl::parse(url).map_err(|error| error.to_string())?;
        match url.server().map(host) {
            None => Err(format!("{url} is no server")),
            Some(None) => Err(format!("{url} names no port")),
            Some(Some(_)) => Ok(Self { url }),
        }
    }

    /// Makes room for one store.
    pub(crate) async fn place(&self) -> Result<Place, BoxError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = std::time::UNIX_EPOCH.elapsed()?.as_nanos() % 1_000_000_000_000;
        let place = Place { server: self.clone(), name: format!("sim_{}_{nanos}_{count}", std::process::id()) };
        if self.kind() == "mysql" {
            place.on_mysql("CREATE DATABASE").await?;
        }
        Ok(place)
    }

    fn kind(&self) -> &'static str {
        self.url.backend()
    }

    fn address(&self) -> &str {
        self.url.server().unwrap_or_default()
    }
}

/// As in the environment that `dev/services` prints: an address would tell a password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$MILEPOST_TEST_{}", self.kind().to_uppercase())
    }
}

/// A schema, a database or a prefix.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    server: Server,
    name: String,
}

impl Place {
    /// Past every proxy.
    pub(crate) async fn open(&self, membership: Membership) -> Result<Arc<dyn Store>, StoreError> {
        self.open_at(None, membership).await
    }

    /// By another port of this machine, if one is named.
    pub(crate) async fn open_at(
        &self,
        port: Option<u16>,
        membership: Membership,
    ) -> Result<Arc<dyn Store>, StoreError> {
        let (address, name) = (self.server.address(), &self.name);
        let url = match self.server.kind() {
            "postgres" => format!("{address}{}options=-c%20search_path%3D{name}", separator(address)),
            "mysql" => {
                let (scheme, authority, _) = parts(address).unwrap_or_default();
                format!("{scheme}://{authority}/{name}")
            }
            _ => format!("{address}{}prefix={name}", separator(address)),
        };
        let url = match port {
            Some(port) => {
                let detail = "the server's address has no host".to_owned();
                at_port(&url, port).ok_or(StoreError::Format { detail })?
            }
            None => url,
        };
        let url = StoreUrl::parse(&url).map_err(|error| StoreError::Format { detail: error.to_string() })?;
        url.open(membership).await
    }

    /// `host:port` of the server.
    pub(crate) fn host(&self) -> &str {
        host(self.server.address()).unwrap_or_default()
    }

    /// Leaves nothing.
    pub(crate) async fn remove(&self) -> Result<(), BoxError> {
        match self.server.kind() {
            "postgres" => {
                let (client, connection) = tokio_postgres::connect(self.server.address(), NoTls).await?;
                let driver = tokio::spawn(connection);
                client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name)).await?;
                drop(client);
                driver.await??;
                Ok(())
            }
            "mysql" => self.on_mysql("DROP DATABASE IF EXISTS").await,
            _ => self.remove_keys().await,
        }
    }

    async fn on_mysql(&self, what: &str) -> Result<(), BoxError> {
        let options = mysql_async::Opts::from_url(self.server.address())?;
        let options = mysql_async::OptsBuilder::from_opts(options).db_name(None::<String>).prefer_socket(false);
        let mut connection = mysql_async::Conn::new(options).await?;
        connection.query_drop(format!("{what} {}", self.name)).await?;
        connection.disconnect().await?;
        Ok(())
    }

    async fn remove_keys(&self) -> Result<(), BoxError> {
        let client = redis::Client::open(self.server.address())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}:*", self.name)).arg("COUNT").arg(10_000);
            let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
            if !keys.is_empty() {
                let _: i64 = redis::cmd("UNLINK").arg(keys).query_async(&mut connection).await?;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

/// Scheme, who at which host, and the rest.
fn parts(address: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Some((scheme, authority, path))
}

/// `host:port` of an address, if it names a port.
fn host(address: &str) -> Option<&str> {
    let host = parts(address)?.1.rsplit('@').next()?;
    host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).map(|_| host)
}

/// The same place by another port of this machine.
fn at_port(address: &str, port: u16) -> Option<String> {
    let (scheme, authority, path) = parts(address)?;
    let who = authority.rfind('@').map_or("", |at| &authority[..=at]);
    Some(format!("{scheme}://{who}127.0.0.1:{port}{path}"))
}

fn separator(address: &str) -> char {
    if address.contains('?') { '&' } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::at_port;

    #[test]
    fn an_address_leads_through_a_proxy_with_or_without_a_path() {
        for (address, by_proxy) in [
            ("redis://localhost:6379", "redis://127.0.0.1:9"),
            ("redis://localhost:6379?prefix=x", "redis://127.0.0.1:9?prefix=x"),
            ("mysql://a:b@db:3306/x", "mysql://a:b@127.0.0.1:9/x"),
            ("postgres://a:db:5432@db:5432/x?y=z", "postgres://a:db:5432@127.0.0.1:9/x?y=z"),
        ] {
            assert_eq!(at_port(address, 9).as_deref(), Some(by_proxy));
        }
        assert_eq!(at_port("localhost:6379", 9), None);
    }
}
