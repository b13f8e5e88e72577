//! What every request can reach, and the settings it is treated by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use milepost_core::api::PlanProgress;
use milepost_core::task::TaskView;
use milepost_engine::{Consumer, Engine};
use milepost_store::{PlanRow, Store, StoreError, StoredTask, report};
use tokio_util::sync::CancellationToken;

use crate::auth::Tokens;
use crate::idempotency::InFlight;
use crate::limits::RateLimit;
use crate::metrics::Metrics;
use crate::sse::Hub;

/// How the server treats what comes in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Plans that come over HTTP may have `run:` stages.
    pub allow_commands: bool,
    /// Requests without a token are refused; so it must be on any address that others can reach.
    pub require_token: bool,
    /// The longest body that is read.
    pub max_body_bytes: usize,
    /// Names, besides those of the loopback, under which a server without tokens may be asked.
    pub allowed_hosts: Vec<String>,
    /// Connections at once; those beyond are told to come back.
    pub max_connections: usize,
    /// Requests a second of one caller, in the long run; none: as many as they like.
    pub rate_limit: Option<u32>,
    /// Dead letters put back a second, by all callers together; none: as many as they like.
    pub redrive_limit: Option<u32>,
    /// How long a caller may take to send a request's head, and so also how long an idle connection is kept.
    pub head_timeout: Duration,
    /// How long a request may take to be read and answered. A stream has its answer as soon as it begins.
    pub request_timeout: Duration,
    /// How long a caller may leave an answer untouched before the connection is cut.
    pub write_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_commands: false,
            require_token: false,
            max_body_bytes: 16 * 1024 * 1024,
            allowed_hosts: Vec::new(),
            max_connections: 4096,
            rate_limit: None,
            redrive_limit: Some(10),
            head_timeout: Duration::from_secs(20),
            request_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// Whoever takes messages in here, once there is somebody.
pub(crate) type ConsumerOnce = Arc<OnceLock<Arc<dyn Consumer>>>;

/// A handle that is cheap to clone; each request has one.
#[derive(Debug, Clone)]
pub struct App {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    settings: Settings,
    in_flight: InFlight,
    tokens: Tokens,
    metrics: Metrics,
    consumer: ConsumerOnce,
    redrives: Option<RateLimit>,
    draining: AtomicBool,
    closing: CancellationToken,
    hub: Arc<Hub>,
}

impl App {
    pub fn new(engine: Engine, settings: Settings) -> Self {
        let closing = CancellationToken::new();
        let consumer = ConsumerOnce::default();
        let inner = Inner {
            redrives: settings.redrive_limit.map(RateLimit::new),
            hub: Hub::new(engine.clone(), closing.clone()),
            tokens: Tokens::default(),
            metrics: Metrics::new(&engine, &consumer),
            consumer,
            draining: AtomicBool::new(false),
            closing,
            in_flight: InFlight::default(),
            engine,
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Says who takes messages in on this node. The first one stays.
    pub fn set_consumer(&self, consumer: Arc<dyn Consumer>) {
        let _ = self.inner.consumer.set(consumer);
    }

    pub(crate) fn consumer(&self) -> Option<&Arc<dyn Consumer>> {
        self.inner.consumer.get()
    }

    /// None: as many as they like.
    pub(crate) fn redrives(&self) -> Option<&RateLimit> {
        self.inner.redrives.as_ref()
    }

    /// From now on the server says that it is not ready, so that nobody new is sent here. It goes on answering.
    pub fn drain(&self) {
        self.inner.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Acquire)
    }

    /// Fires when the server leaves: streams, which have no end of their own, end then.
    pub fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &**self.inner.engine.store()
    }

    /// The task as the store has it; whether that is the last word of it, this node knows.
    pub(crate) fn task_view(&self, stored: &StoredTask) -> TaskView {
        let durable = self.engine().is_durable(&stored.key.id);
        self.engine().live_view(TaskView { durable, ..TaskView::from(stored) })
    }

    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.inner.in_flight
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.inner.tokens
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }
}

/// How far a plan is by what the store has, and by what this node knows of the tasks that it runs.
pub(crate) async fn plan_progress(engine: &Engine, row: &PlanRow) -> Result<PlanProgress, StoreError> {
    report::plan_progress(&**engine.store(), row, engine.clock().now(), |task| engine.live_progress(task)).await
}
