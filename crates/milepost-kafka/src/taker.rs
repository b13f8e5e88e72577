//! One message on its way into the store, for as long as that takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use milepost_core::message::{Arrival, Message};
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Engine, Received, VerbError};
use milepost_store::StoreError;
use tokio::time::Instant;

use crate::chain::{self, Chains};
use crate::incoming::{Incoming, Verdict};
use crate::lines::Lines;
use crate::shared::{Counted, Shared};

/// How often a message asks for a task that is not there yet.
const ASK_EVERY: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) engine: Engine,
    pub(crate) chains: Arc<Chains>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) lines: Lines,
    /// How long ids are kept.
    pub(crate) remember: Millis,
}

/// Why a message was not taken in.
enum Trouble {
    /// It may go well the next time.
    Passing(String),
    /// It never will.
    Lasting(String),
}

impl Taker {
    /// Returns when the store has the message, or has it as a dead letter.
    pub(crate) async fn take_in(&self, incoming: Incoming) {
        let counts = &self.shared.counts;
        let given_up = match self.read(&incoming) {
            Ok(message) => match self.hand_over(&incoming, &message).await {
                Ok(()) => false,
                Err(reason) => self.give_up(&incoming, Some(&message), reason).await,
            },
            Err(reason) => self.give_up(&incoming, None, reason).await,
        };
        counts.consumed.fetch_add(1, Ordering::AcqRel);
        if given_up {
            counts.failed.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn read(&self, incoming: &Incoming) -> Result<Message, String> {
        let (found, most) = (incoming.bytes.len(), self.shared.settings.max_message_bytes);
        if found > most {
            return Err(format!("the message has {found} bytes, and {most} are allowed"));
        }
        Message::parse(&incoming.bytes).map_err(|error| error.to_string())
    }

    /// The reason when it is of no use.
    async fn hand_over(&self, incoming: &Incoming, message: &Message) -> Result<(), String> {
        let arrival = Arc::new(self.arrival(incoming, message));
        let patience = Instant::now() + self.shared.settings.patience.as_duration();
        let mut refused = Refused::default();
        loop {
            match self.lines.in_turn(&message.task_id, self.offer(message, &arrival)).await {
                Ok(Received::Unknown) if Instant::now() >= patience => {
                    return Err(format!("there is no task `{}`", message.task_id));
                }
                Ok(Received::Unknown) => {
                    refused.ended();
                    let _parked = Counted::one(&self.shared.counts.parked);
                    tokio::time::sleep_until(patience.min(Instant::now() + ASK_EVERY)).await;
                }
                Ok(Received::Started | Received::Expired | Received::Seen | Received::NotWaiting(_)) => return Ok(()),
                Err(Trouble::Passing(error)) => refused.again(&self.shared, &error).await,
                Err(Trouble::Lasting(reason)) => return Err(reason),
            }
        }
    }

    async fn offer(&self, message: &Message, arrival: &Arc<Arrival>) -> Result<Received, Trouble> {
        let received = self.engine.receive(&message.task_id, arrival.clone()).await.map_err(trouble)?;
        let (Received::Unknown, Some(name)) = (received, &message.chain) else { return Ok(received) };
        let Some(chain) = self.chains.get(name) else {
            return Err(Trouble::Lasting(format!("there is no chain `{name}` here")));
        };
        let plan = Arc::new(chain::plan(chain, message, arrival));
        self.engine.receive_new(plan, arrival).await.map_err(trouble)
    }

    fn arrival(&self, incoming: &Incoming, message: &Message) -> Arrival {
        let published = message.published_at.unwrap_or(Timestamp::from_millis(incoming.origin.timestamp));
        Arrival {
            id: message.message_id.as_str().into(),
            deadline: Some(message.deadline.unwrap_or(published + self.shared.settings.deadline)),
            remembered_until: self.engine.clock().now() + self.remember,
            text: String::from_utf8_lossy(&incoming.bytes).into(),
            origin: Some(incoming.origin.clone()),
        }
    }

    /// True unless it was given up before.
    async fn give_up(&self, incoming: &Incoming, message: Option<&Message>, reason: String) -> bool {
        let origin = &incoming.origin;
        tracing::warn!(partition = origin.partition, offset = origin.offset, reason, "a message is a dead letter");
        let (node, at) = (self.engine.node(), self.engine.clock().now());
        let verdict = Verdict { reason, node, at, remembered_until: at + self.remember };
        let mut refused = Refused::default();
        loop {
            match self.engine.store().change_books(incoming.given_up(message, &verdict)).await {
                Ok(()) => return true,
                Err(StoreError::Kept { .. }) => return false,
                Err(error) => refused.again(&self.shared, &error.to_string()).await,
            }
        }
    }
}

fn trouble(error: VerbError) -> Trouble {
    let passing = match &error {
        VerbError::Moved | VerbError::InDoubt(_) | VerbError::Version { .. } => true,
        VerbError::Store(error) => match error {
            StoreError::Unavailable { .. }
            | StoreError::Conflict { .. }
            | StoreError::Fenced { .. }
            | StoreError::PlanConflict { .. }
            | StoreError::Owned { .. }
            | StoreError::Format { .. } => true,
            StoreError::NotFound { .. }
            | StoreError::KeyReused { .. }
            | StoreError::Kept { .. }
            | StoreError::Clash(_)
            | StoreError::Plan(_)
            | StoreError::Task(_)
            | StoreError::Damaged { .. } => false,
        },
        VerbError::Rejected(_) | VerbError::Plan(_) | VerbError::Refused(_) | VerbError::NotFound { .. } => false,
    };
    if passing { Trouble::Passing(error.to_string()) } else { Trouble::Lasting(error.to_string()) }
}

/// A write that the store does not take for now. As long as there is one, nothing more is read.
#[derive(Debug, Default)]
struct Refused<'a> {
    counted: Option<Counted<'a>>,
    pause: Duration,
}

impl<'a> Refused<'a> {
    async fn again(&mut self, shared: &'a Shared, error: &str) {
        if self.counted.is_none() {
            if shared.counts.refused.load(Ordering::Acquire) == 0 {
                tracing::warn!(error, "the store did not take a message; it is offered again");
            }
            self.counted = Some(Counted::one(&shared.counts.refused));
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(self.pause).await;
    }

    fn ended(&mut self) {
        self.counted = None;
        self.pause = Duration::ZERO;
    }
}
