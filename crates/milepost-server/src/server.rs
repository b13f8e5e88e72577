//! Listening, and leaving in good order.

use std::net::SocketAddr;

use milepost_store::StoreError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::accept::{self, Listening};
use crate::app::App;
use crate::tls::Tls;
use crate::{edge, routes};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    /// Make a token, or listen for this machine alone.
    #[error("others can reach {address}, and there is no token to tell them apart by")]
    NoToken { address: SocketAddr },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    secure: bool,
    app: App,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(app: App, address: SocketAddr) -> Result<Self, ServeError> {
        Self::start_with(app, address, None).await
    }

    /// With a certificate it speaks TLS and nothing else.
    pub async fn start_with(app: App, address: SocketAddr, tls: Option<Tls>) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, secure) = (CancellationToken::new(), tls.is_some());
        let router = edge::around(routes::router(app.clone()), &app);
        let listening = Listening { listener, router, tls, app: app.clone(), stop: stop.clone() };
        Ok(Self { address, secure, app, stop, task: tokio::spawn(accept::run(listening)) })
    }

    /// Where it listens, also when any free port was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As a client would write it.
    pub fn url(&self) -> String {
        format!("http{}://{}", if self.secure { "s" } else { "" }, self.address)
    }

    /// Takes no more requests, ends the streams, and lets requests that are being answered get their answer.
    pub async fn close(self) {
        self.app.drain();
        self.app.closing().cancel();
        self.stop.cancel();
        let _ = self.task.await;
    }
}
