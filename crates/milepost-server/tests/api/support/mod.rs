//! A server over a store, stages that do what the test says, and requests as curl would make them.

mod held;
mod steps;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::{Task, TaskStatus};
use milepost_engine::{Engine, Options, Registry};
use milepost_server::{App, Server, Settings};
use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, StatusCode};
use serde_json::Value;

pub(crate) use held::Held;
pub(crate) use steps::Steps;
pub(crate) use waits::Waits;

/// Long enough for any machine, and never waited for when all is well.
pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), work).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// A node with its server, and a client of it.
pub(crate) struct World {
    pub(crate) steps: Steps,
    pub(crate) engine: Engine,
    pub(crate) app: App,
    server: Server,
    client: reqwest::Client,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new())).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::with(store, Settings::default()).await
    }

    pub(crate) async fn with(store: Arc<dyn Store>, settings: Settings) -> Self {
        let steps = Steps::default();
        let builtin = milepost_stages::builtin().into_iter();
        let registry = builtin.fold(Registry::new(), |registry, (name, kind)| registry.with(name, kind));
        let engine = Engine::new(
            store,
            registry.with("step", steps.kind()).with_workflow(Arc::new(Waits)),
            Options::new("node-1"),
        );
        engine.start();
        let app = App::new(engine.clone(), settings);
        let server = Server::start(app.clone(), ([127, 0, 0, 1], 0).into()).await;
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { steps, engine, app, server: server.expect("a free port"), client: reqwest::Client::new() }
    }

    pub(crate) async fn close(self) {
        drop(self.client);
        bounded("the server's end", self.server.close()).await;
        bounded("the node's end", self.engine.stop()).await;
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.server.address()))
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let response = bounded("an answer", request.send()).await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        Reply { status, headers, text: response.text().await.expect("a body") }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, &format!("/api/v1{path}"))).await
    }

    /// A GET that has to succeed.
    pub(crate) async fn read(&self, path: &str) -> Value {
        self.get(path).await.expect(StatusCode::OK)
    }

    /// A POST without a body.
    pub(crate) async fn post(&self, path: &str) -> Reply {
        self.send(self.request(Method::POST, &format!("/api/v1{path}"))).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, "application/json", &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, media_type: &str, body: &str) -> Reply {
        let request = self.request(Method::POST, &format!("/api/v1{path}"));
        self.send(request.header(CONTENT_TYPE, media_type).body(body.to_owned())).await
    }

    /// Hands in a plan of YAML that has to be accepted.
    pub(crate) async fn submit(&self, path: &str, plan: &str) -> Value {
        self.post_text(path, "application/yaml", plan).await.expect(StatusCode::CREATED)
    }

    /// Waits until the stored task is as `wanted` says; looks at every change that the feed tells of.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Task) -> bool) {
        let id = TaskId::parse(id).expect("a task id");
        let waiting = async {
            let mut feed = self.engine.feed().subscribe();
            loop {
                let stored = self.engine.store().task(&id).await.expect("a store").expect("a task");
                if wanted(&stored.task) {
                    return;
                }
                // Falling behind is no harm here: the store is what is looked at.
                let _ = feed.recv().await;
            }
        };
        bounded(&format!("task {id} as it is wanted"), waiting).await;
    }

    pub(crate) async fn until_status(&self, id: &str, status: TaskStatus) {
        self.until(id, |task| task.status() == status).await;
    }

    pub(crate) async fn until_ended(&self, plan: &str) {
        let plan = PlanId::parse(plan).expect("a plan id");
        let ended = self.engine.wait_for_plan(&plan, |row| row.ended_at.is_some());
        bounded("the plan's end", ended).await.expect("a plan");
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: StatusCode) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// An error of this status and kind, in the one form that errors have; its detail.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["type"], format!("urn:milepost:problem:{code}"), "{problem}");
        assert!(problem["title"].is_string(), "{problem}");
        problem["detail"].as_str().expect("a detail").to_owned()
    }
}
