//! A server on a port of its own over a store in memory, and a caller who speaks to it as bluntly as needed.

pub(crate) mod store;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::api::{NewToken, Scope, TokenRequest};
use milepost_core::id::Tenant;
use milepost_engine::{Engine, Options, Registry};
use milepost_server::{App, Server, Settings, mint};
use milepost_stages::NoopKind;
use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than anything here takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) app: App,
    pub(crate) server: Server,
    pub(crate) client: reqwest::Client,
}

impl World {
    pub(crate) async fn new(settings: Settings) -> Self {
        Self::over(Arc::new(MemoryStore::new()), settings).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, settings: Settings) -> Self {
        let engine = engine(store);
        let app = App::new(engine.clone(), settings);
        let server = Server::start(app.clone(), ([127, 0, 0, 1], 0).into()).await.unwrap();
        Self { engine, app, server, client: client() }
    }

    pub(crate) async fn asking_for_tokens() -> Self {
        Self::new(Settings { require_token: true, ..Settings::default() }).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.url())
    }

    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path))
    }

    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(self.url(path))
    }

    pub(crate) async fn token(&self, name: &str, scope: Scope) -> NewToken {
        self.bound_token(name, scope, &[]).await
    }

    pub(crate) async fn bound_token(&self, name: &str, scope: Scope, tenants: &[&str]) -> NewToken {
        let tenants = tenants.iter().map(|tenant| Tenant::parse(tenant).unwrap()).collect();
        let request = TokenRequest { name: name.to_owned(), scope, tenants, expires_at: None };
        let store = self.engine.store();
        let (row, new) = mint(request, &store.tokens().await.unwrap(), self.engine.clock().now()).unwrap();
        store.put_token(row).await.unwrap();
        new
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.address()).await.unwrap()
    }
}

pub(crate) fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::new(store, Registry::new().with("noop", Arc::new(NoopKind)), Options::new("node"))
}

pub(crate) fn client() -> reqwest::Client {
    // One provider for the whole process; whichever test is first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// Sends something and reads until the other end closes.
pub(crate) async fn exchange(mut stream: TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    rest(stream).await
}

/// What comes until the other end closes, also when it does so harshly.
pub(crate) async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("the server keeps the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A problem's own code.
pub(crate) async fn code(response: reqwest::Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/problem+json", "{response:?}");
    let status = response.status().as_u16();
    let problem: serde_json::Value = response.json().await.unwrap();
    assert_eq!(problem["status"], status);
    problem["code"].as_str().unwrap().to_owned()
}
