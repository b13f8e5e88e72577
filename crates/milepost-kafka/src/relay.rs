//! Publishes what the store has to say, in its order, and strikes it out when the brokers have it.
//!
//! What is published but not struck out yet is published again by whoever comes next: readers know it by its header.
//! A topic that takes nothing holds up what is for it and nothing else. A record that no broker will ever take is set
//! aside as a dead letter, and those behind it go on.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all};
use futures::stream::FuturesUnordered;
use milepost_engine::Engine;
use milepost_store::{Book, BookChange, Entry, EntryQuery, Parcel, SetAside, StoreError};
use tokio::time::Instant;

use crate::cluster::{Cluster, SendError, Writer};
use crate::outgoing::Outgoing;
use crate::shared::Shared;
use crate::turn::Turns;

const BATCH: usize = 500;
/// While there is something to say, and when there is not.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_secs(1);
/// How long a topic that fails is left alone: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Relay {
    engine: Engine,
    shared: Arc<Shared>,
    cluster: Arc<dyn Cluster>,
    writer: Arc<dyn Writer>,
    turns: Turns,
    /// Published, and not yet struck out: the store was away in between.
    published: HashSet<String>,
    /// A newer version may know what they are.
    unreadable: HashSet<String>,
    /// Topics that take nothing for now. Each is tried with one record, beside everything else.
    failing: BTreeMap<String, Failing>,
    probes: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// All that is before this place waits for a topic that fails, or cannot be read.
    from: Option<i64>,
}

struct Failing {
    /// The first of its key, so it may be sent before all others; none while it is under way.
    probe: Option<Outgoing>,
    pause: Duration,
    again_at: Instant,
}

/// What came of a record.
type Sent = (Outgoing, Result<(), SendError>);

/// What came of a look at the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Nothing,
    Published,
    /// It is another node's turn.
    NotOurs,
}

impl Relay {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>, cluster: Arc<dyn Cluster>, writer: Arc<dyn Writer>) -> Self {
        Self {
            turns: Turns::new(engine.clone()),
            engine,
            shared,
            cluster,
            writer,
            published: HashSet::new(),
            unreadable: HashSet::new(),
            failing: BTreeMap::new(),
            probes: FuturesUnordered::new(),
            from: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let closed = self.shared.closed.clone();
        closed.run_until_cancelled(self.relay()).await;
    }

    async fn relay(&mut self) {
        self.shared.ready().await;
        loop {
            let looked = self.look().await;
            let pause = match looked {
                Ok(Look::Published) => SOON,
                Ok(Look::Nothing) => LATER,
                Ok(Look::NotOurs) => {
                    // Whoever has it may publish what fails here.
                    self.forget();
                    LATER
                }
                Err(error) => {
                    self.unread(&error);
                    LATER
                }
            };
            tokio::select! {
                biased;
                Some(sent) = self.probes.next() => {
                    if let Err(error) = self.settle(vec![sent]).await {
                        self.unread(&error);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn unread(&mut self, error: &StoreError) {
        tracing::debug!(%error, "the outbox could not be read or changed");
        self.from = None;
    }

    fn forget(&mut self) {
        self.failing.clear();
        self.probes.clear();
        self.from = None;
    }

    /// Goes through the outbox once, page by page.
    async fn look(&mut self) -> Result<Look, StoreError> {
        let mut look = Look::Nothing;
        loop {
            let query =
                EntryQuery { book: Book::Outbox, after: self.from, limit: BATCH, now: self.engine.clock().now() };
            let page = self.engine.store().entries(query).await?;
            if page.items.is_empty() && self.from.is_none() {
                self.shared.nothing_waits();
                self.failing.clear();
            }
            let entries = self.readable(page.items);
            let is_due = self.failing.values().any(Failing::is_due);
            if is_due || !entries.is_empty() {
                if !self.turns.have(!self.shared.reach.is_lost()).await? {
                    return Ok(Look::NotOurs);
                }
                self.probe();
                match self.publish(entries).await? {
                    Look::Published => look = Look::Published,
                    Look::NotOurs => return Ok(Look::NotOurs),
                    Look::Nothing => {}
                }
            }
            match page.next {
                Some(next) => self.from = Some(next),
                None => {
                    if self.failing.is_empty() {
                        self.from = None;
                    }
                    return Ok(look);
                }
            }
        }
    }

    /// Without those whose topics take nothing for now.
    fn readable(&mut self, entries: Vec<Entry>) -> Vec<Outgoing> {
        let mut readable = Vec::with_capacity(entries.len());
        for entry in entries {
            match serde_json::from_str::<Parcel>(&entry.body) {
                Ok(parcel) => {
                    let topic = self.shared.settings.topic_of(&parcel.to).to_owned();
                    if !self.failing.contains_key(&topic) {
                        readable.push(Outgoing { entry: entry.key, topic, parcel });
                    }
                }
                Err(error) => {
                    if self.unreadable.insert(entry.key.clone()) {
                        tracing::error!(%error, entry = entry.key, "an entry of the outbox cannot be read");
                    }
                }
            }
        }
        readable
    }

    /// Tries the topics whose time has come, without waiting for what comes of it.
    fn probe(&mut self) {
        self.renew_writer();
        for failing in self.failing.values_mut().filter(|failing| failing.is_due()) {
            if let Some(outgoing) = failing.probe.take() {
                self.probes.push(send(self.writer.clone(), outgoing).boxed());
            }
        }
    }

    async fn publish(&mut self, entries: Vec<Outgoing>) -> Result<Look, StoreError> {
        let (mut left, mut look) = (entries, Look::Nothing);
        while !left.is_empty() {
            if !self.turns.have(!self.shared.reach.is_lost()).await? {
                return Ok(Look::NotOurs);
            }
            // At most one of a key at a time: one that fails must not be overtaken by the next.
            let (wave, later) = wave(left);
            let (known, new): (Vec<_>, Vec<_>) =
                wave.into_iter().partition(|outgoing| self.published.contains(&outgoing.entry));
            let mut sent = join_all(new.into_iter().map(|outgoing| send(self.writer.clone(), outgoing))).await;
            sent.extend(known.into_iter().map(|outgoing| (outgoing, Ok(()))));
            if self.settle(sent).await? {
                look = Look::Published;
            }
            left = later.into_iter().filter(|outgoing| !self.failing.contains_key(&outgoing.topic)).collect();
        }
        Ok(look)
    }

    /// What follows from what came of records; whether any of them is out of the outbox by it.
    async fn settle(&mut self, sent: Vec<Sent>) -> Result<bool, StoreError> {
        let (mut published, mut unpublished) = (Vec::new(), Vec::new());
        for (outgoing, sent) in sent {
            match sent {
                Ok(()) => {
                    self.takes(&outgoing.topic);
                    published.push(outgoing);
                }
                Err(error) => unpublished.push((outgoing, error)),
            }
        }
        // Only now: a topic that has taken some of them and not the others fails, or those behind would overtake them.
        let mut refused = Vec::new();
        for (outgoing, error) in unpublished {
            match error {
                SendError::Passing(why) => self.fails(outgoing, &why),
                SendError::TooLarge(_) | SendError::NoTopic(_) | SendError::Refused(_) => refused.push(outgoing),
            }
        }
        let mut set_aside = Vec::new();
        for outgoing in refused {
            if self.failing.get(&outgoing.topic).is_some_and(|failing| failing.probe.is_some()) {
                continue;
            }
            // The answer may have been about another record of the same batch.
            let (outgoing, sent) = send_alone(&self.writer, outgoing).await;
            match sent {
                Ok(()) => {
                    self.takes(&outgoing.topic);
                    published.push(outgoing);
                }
                // One of the topics of the settings will be made again.
                Err(SendError::NoTopic(why)) if !outgoing.is_for_a_topic_by_name() => self.fails(outgoing, &why),
                Err(SendError::Passing(why)) => self.fails(outgoing, &why),
                Err(SendError::TooLarge(why) | SendError::NoTopic(why) | SendError::Refused(why)) => {
                    self.takes(&outgoing.topic);
                    set_aside.push((outgoing, why));
                }
            }
        }
        let any = !published.is_empty() || !set_aside.is_empty();
        self.strike(published).await?;
        for (outgoing, why) in set_aside {
            self.set_aside(outgoing, why).await?;
        }
        Ok(any)
    }

    /// The brokers are there and answer for this topic.
    fn takes(&mut self, topic: &str) {
        self.shared.reach.found();
        self.shared.takes_again(topic);
        if self.failing.remove(topic).is_some() {
            // What has waited for it comes first.
            self.from = None;
        }
    }

    fn fails(&mut self, outgoing: Outgoing, why: &str) {
        self.shared.fails(&outgoing.topic, why);
        match self.failing.get_mut(&outgoing.topic) {
            // Another record of the same wave, or the one that was to try it.
            Some(failing) => {
                if failing.probe.is_none() {
                    failing.probe = Some(outgoing);
                    failing.pause = (failing.pause * 2).min(LONGEST_PAUSE);
                    failing.again_at = Instant::now() + failing.pause;
                }
            }
            None => {
                let topic = outgoing.topic.clone();
                let again_at = Instant::now() + FIRST_PAUSE;
                self.failing.insert(topic, Failing { probe: Some(outgoing), pause: FIRST_PAUSE, again_at });
            }
        }
    }

    async fn strike(&mut self, published: Vec<Outgoing>) -> Result<(), StoreError> {
        if published.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = published.into_iter().map(|outgoing| outgoing.entry).collect();
        let strike = keys.iter().map(|key| (Book::Outbox, key.clone())).collect();
        self.published.extend(keys.iter().cloned());
        self.engine.store().change_books(BookChange { keep: Vec::new(), strike }).await?;
        keys.iter().for_each(|key| _ = self.published.remove(key));
        Ok(())
    }

    /// A dead letter in its place, from where a person puts it back.
    async fn set_aside(&mut self, outgoing: Outgoing, reason: String) -> Result<(), StoreError> {
        let Outgoing { entry, topic, parcel } = outgoing;
        let (at, node) = (self.engine.clock().now(), self.engine.node().to_owned());
        let set_aside = SetAside { entry, topic, parcel, reason, at, node };
        self.engine.store().change_books(set_aside.change()).await?;
        let SetAside { topic, reason, .. } = &set_aside;
        tracing::warn!(topic, reason, dead_letter = set_aside.id(), "what can never be published is a dead letter now");
        Ok(())
    }

    /// One that has met an error that it cannot recover from stays useless.
    fn renew_writer(&mut self) {
        if !self.writer.is_broken() {
            return;
        }
        match self.cluster.writer(self.shared.clone()) {
            Ok(writer) => self.writer = writer,
            Err(error) => tracing::error!(%error, "the outbox is not published any more"),
        }
    }
}

impl Failing {
    fn is_due(&self) -> bool {
        self.probe.is_some() && self.again_at <= Instant::now()
    }
}

/// The first entry of every key of a topic, and the rest, both in order.
fn wave(entries: Vec<Outgoing>) -> (Vec<Outgoing>, Vec<Outgoing>) {
    let mut seen = HashSet::new();
    entries.into_iter().partition(|Outgoing { topic, parcel, .. }| {
        // Without a key there is no order to keep.
        parcel.key.is_empty() || seen.insert((topic.clone(), parcel.key.clone()))
    })
}

async fn send(writer: Arc<dyn Writer>, outgoing: Outgoing) -> Sent {
    let sent = writer.send(&outgoing.record()).await;
    (outgoing, sent)
}

/// As it is, and if it is too large, shortened.
async fn send_alone(writer: &Arc<dyn Writer>, outgoing: Outgoing) -> Sent {
    match send(writer.clone(), outgoing).await {
        (outgoing, Err(SendError::TooLarge(_))) => {
            let sent = writer.send(&outgoing.shortened()).await;
            if sent.is_ok() {
                tracing::warn!(outgoing.entry, "an entry of the outbox was too large for its topic, and was shortened");
            }
            (outgoing, sent)
        }
        sent => sent,
    }
}
