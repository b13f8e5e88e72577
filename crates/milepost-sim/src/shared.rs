//! What all parts of a simulated world have in common: the truth, the time, the network's state, and what was found.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use milepost_core::time::Timestamp;
use milepost_store::Store;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::schedule::Network;
use crate::trace::Trace;
use crate::watch::Watch;

/// When every simulated world begins, by the store's clock.
pub(crate) const DAWN: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(crate) struct Shared {
    /// The store as it is, past the network.
    pub(crate) truth: Arc<dyn Store>,
    /// The store does not stand still while it is looked at, so that all is judged by its log.
    pub(crate) by_log: bool,
    /// One looks at a time.
    pub(crate) looking: tokio::sync::Mutex<()>,
    dawn: Timestamp,
    started: Instant,
    state: Mutex<State>,
    /// There is no point in going on.
    over: Notify,
}

/// The store that everything is judged by.
pub(crate) struct Truth {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) by_log: bool,
    /// What time it is by its clock.
    pub(crate) dawn: Timestamp,
}

pub(crate) struct State {
    pub(crate) watch: Watch,
    pub(crate) weather: Weather,
    trace: Trace,
    /// The first thing that went against a rule.
    violation: Option<String>,
}

/// What becomes of calls to the store at this time.
pub(crate) struct Weather {
    pub(crate) dice: Dice,
    pub(crate) network: Network,
    pub(crate) away_until: Option<Instant>,
    pub(crate) slow: Option<(Instant, Duration)>,
    /// By node.
    pub(crate) cut_until: Vec<Option<Instant>>,
}

impl Weather {
    /// Until when nothing gets through from this node; none if it does now.
    pub(crate) fn closed_until(&self, node: Option<usize>) -> Option<Instant> {
        let now = Instant::now();
        let cut = node.and_then(|node| self.cut_until[node]);
        self.away_until.into_iter().chain(cut).filter(|until| *until > now).max()
    }

    pub(crate) fn slowness(&self) -> Duration {
        self.slow.filter(|(until, _)| *until > Instant::now()).map(|(_, by)| by).unwrap_or_default()
    }

    /// Nothing goes wrong any more.
    pub(crate) fn clears_up(&mut self) {
        self.network = Network::default();
        self.away_until = None;
        self.slow = None;
        self.cut_until.fill(None);
    }
}

impl Shared {
    pub(crate) fn new(truth: Truth, watch: Watch, weather: Weather, trace: Trace) -> Self {
        let Truth { store: truth, by_log, dawn } = truth;
        let state = Mutex::new(State { watch, weather, trace, violation: None });
        let (looking, started, over) = (tokio::sync::Mutex::default(), Instant::now(), Notify::new());
        Self { truth, by_log, looking, dawn, started, state, over }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The true time, which is the store's.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.dawn.as_millis() + self.elapsed().as_millis() as i64)
    }

    pub(crate) fn instant(&self, at_ms: u64) -> Instant {
        self.started + Duration::from_millis(at_ms)
    }

    /// A line of the trace; the words are only made when somebody reads them.
    pub(crate) fn say(&self, who: &str, what: impl FnOnce() -> String) {
        let ms = self.elapsed().as_millis() as u64;
        let mut state = self.state();
        if state.trace.is_on() {
            state.trace.line(ms, who, &what());
        }
    }

    /// A rule was broken.
    pub(crate) fn violated(&self, what: String) {
        self.say("RULE", || what.clone());
        self.state().violation.get_or_insert(what);
        self.over.notify_one();
    }

    /// Resolves when a rule was broken. Also in a world in which something goes round and round, and no time passes.
    pub(crate) async fn over(&self) {
        self.over.notified().await;
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.state().violation.clone()
    }

    pub(crate) fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.state().trace)
    }
}
