//! Reads the topic: takes messages in while there is room, and commits offsets when the store has what was before them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use milepost_core::message::Origin;
use milepost_engine::Engine;
use tokio::time::Instant;

use crate::chain::Chains;
use crate::cluster::{Cluster, Fetched, ReadError, Reader};
use crate::incoming::Incoming;
use crate::lines::Lines;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::taker::Taker;
use crate::valve::{Turn, Valve};

const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// How soon it is noticed that nothing stands in the way any more.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Messages that are written at once for each chain that there is room for: some of them start none, and those that do
/// have their place before they are durable.
const AT_ONCE: usize = 2;
/// Messages whose tasks are missing, kept in memory.
const MOST_PARKED: usize = 10_000;
/// What is being written when it is stopped gets so long, and so does the farewell to the brokers.
const LAST_WRITES: Duration = Duration::from_secs(2);
const FAREWELL: Duration = Duration::from_secs(5);
/// After an error that the library cannot recover from.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Intake {
    pub(crate) engine: Engine,
    pub(crate) chains: Arc<Chains>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cluster: Arc<dyn Cluster>,
}

/// Why reading ended.
enum Ended {
    Stopped,
    /// The client is of no use any more.
    Broken,
}

impl Intake {
    /// `reader` is one that has not begun yet.
    pub(crate) async fn run(self, reader: Box<dyn Reader>) {
        let stopped = self.shared.stopped.clone();
        let Some(remember) = stopped.run_until_cancelled(self.shared.ready()).await else {
            return close(reader, &self.shared).await;
        };
        let Self { engine, chains, shared, cluster } = self;
        let taker = Taker { engine, chains, shared: shared.clone(), lines: Lines::default(), remember };
        let mut reader = reader;
        loop {
            let ended = match reader.subscribe() {
                Ok(()) => read(&taker, &*reader).await,
                Err(error) => {
                    tracing::error!(error, "the topic cannot be read");
                    Ended::Broken
                }
            };
            close(reader, &shared).await;
            if let Ended::Stopped = ended {
                return;
            }
            if stopped.run_until_cancelled(tokio::time::sleep(BEGIN_AGAIN_AFTER)).await.is_none() {
                return;
            }
            reader = match cluster.reader(shared.clone()) {
                Ok(reader) => reader,
                Err(error) => return tracing::error!(%error, "the topic is not read any more"),
            };
        }
    }
}

async fn read(taker: &Taker, reader: &dyn Reader) -> Ended {
    let shared = &taker.shared;
    let mut in_hand = FuturesUnordered::new();
    let mut valve = Valve::Open;
    let mut commits = tokio::time::interval(COMMIT_EVERY);
    let ended = loop {
        let room = taker.engine.room_for_chains().now_or_never().unwrap_or_default();
        let wanted = wants(shared, writing(shared, in_hand.len()), room);
        let (next, turn) = valve.next(wanted, Instant::now());
        let came = shared.reassigned.swap(false, Ordering::AcqRel) && next == Valve::Shut;
        match turn {
            Some(Turn::Resume) => reader.set_paused(false),
            Some(Turn::Pause) => reader.set_paused(true),
            // Partitions come open.
            None if came => reader.set_paused(true),
            None => {}
        }
        valve = next;
        // What is done comes before what is new, so that a full topic cannot keep offsets from being committed.
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => break Ended::Stopped,
            Some(ticket) = in_hand.next() => shared.offsets().done(ticket),
            _ = commits.tick() => {
                let offsets = shared.offsets().to_commit();
                if !offsets.is_empty() {
                    reader.commit(&offsets);
                }
            }
            () = shared.valve.notified() => {}
            _ = taker.engine.room_for_chains(), if room == 0 => {}
            message = reader.next(), if valve.asks() => match message {
                Ok(message) => {
                    shared.reach.well();
                    let ticket = shared.offsets().taken(message.partition, message.offset);
                    let incoming = incoming(message, &shared.settings);
                    in_hand.push(async move {
                        taker.take_in(incoming).await;
                        ticket
                    });
                }
                Err(ReadError::Broken(error)) => {
                    tracing::error!(error, "reading the topic has ended, and begins anew soon");
                    break Ended::Broken;
                }
                Err(error) => passing(shared, &error).await,
            },
            () = tokio::time::sleep(LOOK_EVERY), if !wanted => {}
        }
    };
    let last = async {
        // Those that wait for their tasks are read again by whoever comes next.
        while writing(shared, in_hand.len()) > 0
            && let Some(ticket) = in_hand.next().await
        {
            shared.offsets().done(ticket);
        }
    };
    let _ = tokio::time::timeout(LAST_WRITES, last).await;
    ended
}

/// Those in hand that do not merely wait for their tasks.
fn writing(shared: &Shared, in_hand: usize) -> usize {
    in_hand.saturating_sub(shared.counts.parked.load(Ordering::Acquire))
}

fn wants(shared: &Shared, writing: usize, room: usize) -> bool {
    let counts = &shared.counts;
    !shared.paused.load(Ordering::Acquire)
        && counts.refused.load(Ordering::Acquire) == 0
        && counts.parked.load(Ordering::Acquire) < MOST_PARKED
        && writing < room.saturating_mul(AT_ONCE)
}

/// An error after which reading goes on. It must not be asked for again at once.
async fn passing(shared: &Shared, error: &ReadError) {
    match error {
        ReadError::Away(why) => shared.reach.lost(why),
        ReadError::Passing(_) | ReadError::Broken(_) => {
            shared.reach.troubled(&format!("the topic could not be read: {error}"));
        }
    }
    tokio::time::sleep(LOOK_EVERY).await;
}

fn incoming(message: Fetched, settings: &Settings) -> Incoming {
    let Fetched { partition, offset, timestamp, key, payload } = message;
    let (topic, group) = (settings.topic.as_str().into(), settings.group.as_str().into());
    let key = key.map(|key| String::from_utf8_lossy(&key).into_owned());
    Incoming { origin: Origin { topic, partition, offset, timestamp, group }, key, bytes: payload }
}

/// Commits what is durable and says farewell. Without brokers that may take for ever, so it is waited for only so long.
async fn close(reader: Box<dyn Reader>, shared: &Shared) {
    let offsets = shared.offsets().to_commit();
    if tokio::time::timeout(FAREWELL, reader.close(offsets)).await.is_err() {
        tracing::warn!("Kafka did not answer the farewell; what was read last is read again, and known");
    }
}
