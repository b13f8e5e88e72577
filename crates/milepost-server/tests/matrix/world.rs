//! A server that asks for tokens, over a store with one task of one tenant. Nothing runs: what changes, a request did.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::PlanId;
use milepost_core::time::Timestamp;
use milepost_engine::{Engine, Options, Registry};
use milepost_server::{App, Server, Settings};
use milepost_stages::NoopKind;
use milepost_store::memory::MemoryStore;
use milepost_store::{
    Book, BookChange, ChangeQuery, Changes, Entry, EntryQuery, PlanQuery, PlanRow, Position, Resubmit, Start,
    TaskQuery, TaskRow, TasksOf, TokenRow,
};
use serde_json::{Value, json};

use crate::callers;
use crate::table::Who;

/// The tenant of the task that every request is about.
pub(crate) const HERE: &str = "here";
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// Longer than anything here takes on a busy machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct World {
    engine: Engine,
    server: Server,
    client: reqwest::Client,
    /// What each of `Who::ALL` shows.
    tokens: Vec<Option<String>>,
    spare: String,
}

/// All that a request could have changed.
#[derive(Debug, PartialEq)]
pub(crate) struct Everything {
    newest: Position,
    changes: Changes,
    plans: Vec<PlanRow>,
    tasks: Vec<TaskRow>,
    tokens: Vec<TokenRow>,
    entries: Vec<Entry>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let registry = Registry::new().with("noop", Arc::new(NoopKind));
        let engine = Engine::new(Arc::new(MemoryStore::new()), registry, Options::new("node"));
        let plan = engine.registry().read_plan("body", plan("p", "a").to_string().as_bytes()).expect("a plan");
        engine.submit(Arc::new(plan), Start::Later, Resubmit::Same).await.expect("a store");
        let now = engine.clock().now();
        engine.store().change_books(BookChange { keep: vec![letter(now)], strike: Vec::new() }).await.expect("a store");
        let mut tokens = Vec::new();
        for who in Who::ALL {
            tokens.push(callers::token(&**engine.store(), who, now).await);
        }
        let spare = callers::spare(&**engine.store(), now).await;
        let settings = Settings { require_token: true, ..Settings::default() };
        let server = Server::start(App::new(engine.clone(), settings), ([127, 0, 0, 1], 0).into()).await;
        // One provider for the whole process; whichever test is first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client");
        Self { engine, server: server.expect("a free port"), client, tokens, spare }
    }

    pub(crate) async fn close(self) {
        self.server.close().await;
    }

    /// The routes that the server says it has, as `METHOD /path`.
    pub(crate) async fn routes(&self) -> Vec<String> {
        let document = self.ask("GET /api/v1/openapi.json", Who::Admin).await;
        let document: Value = document.json().await.expect("a document");
        let paths = document["paths"].as_object().expect("paths").iter();
        let routes = paths.flat_map(|(path, item)| {
            item.as_object().expect("methods").keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        routes.collect()
    }

    /// Sends what the route takes; the answer's body is left unread, for a stream has no end.
    pub(crate) async fn ask(&self, route: &str, who: Who) -> reqwest::Response {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let id = match path {
            _ if path.contains("/plans/") => "p",
            _ if path.contains("/tokens/") => &self.spare,
            _ => "a",
        };
        let path = path.replace("{id}", id).replace("{tenant}", HERE).replace("{name}", "go");
        assert!(!path.contains('{'), "{route} has a name that nothing stands for");
        let request = self.client.request(method.parse().expect("a method"), format!("{}{path}", self.server.url()));
        let request = match self.token(who) {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match route {
            "POST /api/v1/plans" => request.json(&plan("new", "new-a")),
            "POST /api/v1/tokens" => request.json(&json!({ "name": "new", "scope": "admin" })),
            _ => request,
        };
        request.send().await.expect("an answer")
    }

    pub(crate) async fn everything(&self) -> Everything {
        let store = self.engine.store();
        let query = PlanQuery { open_only: false, after: None, limit: 1000 };
        let of = TasksOf::Plan(PlanId::parse("p").expect("an id"));
        let tasks = TaskQuery { of, statuses: Vec::new(), after: None, limit: 1000 };
        let changes = ChangeQuery { after: Position::default(), plan: None, limit: 1000 };
        let mut entries = Vec::new();
        for book in Book::ALL {
            let query = EntryQuery { book, after: None, limit: 1000, now: self.engine.clock().now() };
            entries.extend(store.entries(query).await.expect("a store").items);
        }
        Everything {
            entries,
            newest: store.newest().await.expect("a store"),
            changes: store.changes(changes).await.expect("a store"),
            plans: store.plans(query).await.expect("a store").items,
            tasks: store.tasks(tasks).await.expect("a store").items,
            tokens: store.tokens().await.expect("a store"),
        }
    }

    fn token(&self, who: Who) -> Option<&str> {
        let place = Who::ALL.iter().position(|other| *other == who).expect("all of them are there");
        self.tokens[place].as_deref()
    }
}

/// A dead letter of the task, with the same name.
fn letter(at: Timestamp) -> Entry {
    let body = json!({ "id": "a", "taskId": "a", "failureReason": "no route", "failedAt": at }).to_string();
    Entry { book: Book::DeadLetters, key: "a".to_owned(), at, until: None, body }
}

fn plan(id: &str, task: &str) -> Value {
    json!({
        "plan": id,
        "stages": [{ "name": "only", "uses": "noop" }],
        "tasks": [{ "id": task, "tenant": HERE }],
    })
}
