//! The HTTP API of a program's own engine, so that other processes can start, signal and ask after its workflows.

use std::net::SocketAddr;
use std::time::Duration;

use milepost_server::{App, ServeError, Server, Settings};

use crate::engine::Engine;
use crate::error::Error;

/// Requests that are being answered when everything else has ended get this long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

impl Engine {
    /// Answers the HTTP API on this address until the engine is stopped, and says where: `127.0.0.1:0` is any free port.
    /// As with `milepost serve`, an address that others can reach asks for a token, and there has to be one.
    pub async fn serve(&self, address: &str) -> Result<String, Error> {
        let address = resolve(address).await?;
        let engine = self.inner().clone();
        let now = engine.clock().now();
        let settings = Settings::default().for_address(address, &**engine.store(), now).await?;
        let server = Server::start(App::new(engine, settings), address).await?;
        let url = server.url();
        self.keep(server);
        Ok(url)
    }
}

pub(crate) async fn close(server: Server) {
    if tokio::time::timeout(LAST_ANSWERS, server.close()).await.is_err() {
        tracing::warn!("some requests were cut off");
    }
}

async fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let bad = || Error::Address { address: address.to_owned() };
    let mut found = tokio::net::lookup_host(address).await.map_err(|_| bad())?;
    found.next().ok_or_else(bad)
}

impl From<ServeError> for Error {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Store(error) => Error::Store(error),
            error @ (ServeError::Bind { .. } | ServeError::NoToken { .. }) => Error::Serve(Box::new(error)),
        }
    }
}
