//! Reads the topic: takes messages in while there is room, and commits offsets when the store has what was before them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use milepost_core::message::Origin;
use milepost_engine::Engine;
use rdkafka::Message as _;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::chain::Chains;
use crate::clients::{self, Reader};
use crate::incoming::Incoming;
use crate::lines::Lines;
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
}

/// Why reading ended.
enum Ended {
    Stopped,
    /// The client is of no use any more.
    Broken,
}

impl Intake {
    /// `reader` is one that has not begun yet.
    pub(crate) async fn run(self, reader: Reader) {
        let stopped = self.shared.stopped.clone();
        let Some(remember) = stopped.run_until_cancelled(self.shared.ready()).await else {
            return close(reader, self.shared).await;
        };
        let Self { engine, chains, shared } = self;
        let taker = Taker { engine, chains, shared: shared.clone(), lines: Lines::default(), remember };
        let mut reader = reader;
        loop {
            let ended = match reader.subscribe(&[&shared.settings.topic]) {
                Ok(()) => read(&taker, &reader).await,
                Err(error) => {
                    tracing::error!(%error, "the topic cannot be read");
                    Ended::Broken
                }
            };
            close(reader, shared.clone()).await;
            if let Ended::Stopped = ended {
                return;
            }
            if stopped.run_until_cancelled(tokio::time::sleep(BEGIN_AGAIN_AFTER)).await.is_none() {
                return;
            }
            reader = match clients::reader(&shared, taker.engine.node()) {
                Ok(reader) => reader,
                Err(error) => return tracing::error!(%error, "the topic is not read any more"),
            };
        }
    }
}

async fn read(taker: &Taker, reader: &Reader) -> Ended {
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
            Some(Turn::Resume) => set_paused(reader, false),
            Some(Turn::Pause) => set_paused(reader, true),
            // Partitions come open.
            None if came => set_paused(reader, true),
            None => {}
        }
        valve = next;
        tokio::select! {
            () = shared.stopped.cancelled() => break Ended::Stopped,
            message = reader.recv(), if valve.asks() => match message {
                Ok(message) => {
                    shared.reach.well();
                    let ticket = shared.offsets().taken(message.partition(), message.offset());
                    let incoming = incoming(&message, &shared.settings.group);
                    in_hand.push(async move {
                        taker.take_in(incoming).await;
                        ticket
                    });
                }
                Err(KafkaError::MessageConsumptionFatal(code)) => {
                    tracing::error!(%code, "reading the topic has ended, and begins anew soon");
                    break Ended::Broken;
                }
                Err(error) => passing(shared, &error).await,
            },
            Some(ticket) = in_hand.next() => shared.offsets().done(ticket),
            _ = commits.tick() => {
                let offsets = shared.offsets().to_commit();
                clients::commit(reader, &shared.settings.topic, &offsets);
            }
            () = shared.valve.notified() => {}
            _ = taker.engine.room_for_chains(), if room == 0 => {}
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
async fn passing(shared: &Shared, error: &KafkaError) {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::AllBrokersDown) => shared.reach.lost(error),
        Some(RDKafkaErrorCode::BrokerTransportFailure) => {}
        Some(_) | None => shared.reach.troubled("the topic could not be read", error),
    }
    tokio::time::sleep(LOOK_EVERY).await;
}

fn set_paused(reader: &Reader, paused: bool) {
    let done = reader.assignment().and_then(
        |all: TopicPartitionList| {
            if paused { reader.pause(&all) } else { reader.resume(&all) }
        },
    );
    if let Err(error) = done {
        tracing::debug!(%error, paused, "the partitions could not be paused or resumed");
    }
}

fn incoming(message: &BorrowedMessage<'_>, group: &str) -> Incoming {
    let origin = Origin {
        topic: message.topic().into(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis().unwrap_or_default(),
        group: group.into(),
    };
    let key = message.key().map(|key| String::from_utf8_lossy(key).into_owned());
    Incoming { origin, key, bytes: message.payload().unwrap_or_default().to_vec() }
}

/// Commits what is durable and says farewell. Without brokers that may take for ever, so it is waited for only so long.
async fn close(reader: Reader, shared: Arc<Shared>) {
    let (done, waited) = tokio::sync::oneshot::channel();
    let farewell = move || {
        let offsets = shared.offsets().to_commit();
        if !offsets.is_empty() {
            let offsets = clients::list(&shared.settings.topic, &offsets);
            if let Err(error) = reader.commit(&offsets, CommitMode::Sync) {
                tracing::debug!(%error, "the last offsets were not committed");
            }
        }
        drop(reader);
        let _ = done.send(());
    };
    std::thread::Builder::new()
        .name("milepost-kafka-farewell".to_owned())
        .spawn(farewell)
        .expect("a thread can be started");
    if tokio::time::timeout(FAREWELL, waited).await.is_err() {
        tracing::warn!("Kafka did not answer the farewell; what was read last is read again, and known");
    }
}
