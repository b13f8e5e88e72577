//! Several nodes on one store: who is there, who may write, and how one is told what only it can do.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::time::{Millis, Timestamp};

/// A lease lasts this long without a word of its node.
pub const LEASE: Millis = Millis::from_secs(15);
/// A tenant stays closed to others for this long after the last word of whoever has it.
pub const LOCK_TTL: Millis = Millis::from_secs(9000);

/// How a process opens a store that it shares with others.
#[derive(Debug, Clone)]
pub struct Membership {
    /// None: a visitor, who looks, submits and asks, and runs nothing.
    pub node: Option<NodeIdentity>,
    pub lease: Millis,
    pub lock_ttl: Millis,
}

/// Who a node is. One that comes back under its name takes the place of what it was before, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: Arc<str>,
    /// Another at every start.
    pub boot_id: Arc<str>,
}

impl Membership {
    pub fn visitor() -> Self {
        Self { node: None, lease: LEASE, lock_ttl: LOCK_TTL }
    }

    pub fn node(name: impl Into<Arc<str>>, boot_id: impl Into<Arc<str>>) -> Self {
        let node = NodeIdentity { name: name.into(), boot_id: boot_id.into() };
        Self { node: Some(node), ..Self::visitor() }
    }
}

impl Membership {
    /// How long nobody may have been heard of before somebody has to wonder: every node that lives beats at each third of
    /// its lease, and a beat may take a moment.
    ///
    /// Time in which nobody could write counts against nobody. A store keeps when it last heard of any node; whoever finds
    /// that this is longer ago than that puts every lease and every tenant lock off by the rest, before anybody is judged.
    /// So a server that was away costs nobody its lease, and a node that is gone while others are there loses it in time.
    pub fn patience(&self) -> Millis {
        Millis::new(self.lease.get() / 5 * 2)
    }
}

/// What a node says of itself when it renews its lease.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beat {
    pub capacity: u64,
    pub in_hand: u64,
}

/// What a node learns when it renews its lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beaten {
    /// How often, since the store was opened, the lease had run out and others were let in: each time, what the node had
    /// in hand was no longer its own, and it was a member again. A count, for an answer that is lost takes no news with it.
    pub losses: u64,
    /// By then another node's lease may have run out, and its tasks be there to take; now, if this beat itself has ended one.
    pub look_again: Option<Millis>,
    /// What time it is by the store's clock; none where the node's own is the only one.
    pub now: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    pub boot_id: String,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    /// Its lease is good, by the store's clock.
    pub live: bool,
    pub in_hand: u64,
    pub capacity: u64,
}

/// What somebody asks of a task that a node holds; only that node can do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Posted again under the same id, because an answer was lost, it is still one letter.
    pub id: String,
    pub task: TaskId,
    pub body: String,
}

/// What came of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    With(String),
    NotYet,
    /// Whoever was asked is gone.
    Never,
}

/// A letter that waits for its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    pub no: i64,
    pub letter: Letter,
}
