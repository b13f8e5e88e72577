//! Who is on the store: its one owner, or several nodes, each with a lease that it has to renew.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use milepost_core::planted::planted;
use milepost_core::time::{Millis, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::wall_clock;
use crate::error::StoreError;
use crate::nodes::{Beat, Beaten, Membership, NodeIdentity, NodeRow};

use super::data::Data;

/// A node that has ended is shown, and a letter kept, for so long.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(3600);

/// All sessions of a store. Each has a number of its own, from a counter that only grows.
#[derive(Debug)]
pub(super) struct Sessions {
    last: u64,
    /// The session of the handle that has the store to itself, and whether it has claimed.
    sole: u64,
    sole_settled: bool,
    members: BTreeMap<Arc<str>, Member>,
    /// Every handle, to be told when another has left something.
    handles: BTreeMap<u64, Weak<Notify>>,
    last_handle: u64,
    clock: StoreClock,
    /// When any node was last heard of.
    heard_at: Instant,
}

#[derive(Debug)]
struct Member {
    session: u64,
    boot_id: Arc<str>,
    /// Its leases are void; it can write no more.
    ended: bool,
    started_at: Instant,
    seen_at: Instant,
    expires_at: Instant,
    membership: Membership,
    /// It knows which era it is in.
    settled: bool,
    /// It wants to know, and could not be told yet.
    asks: bool,
    said: Beat,
}

/// Which era a node is in: one lasts for as long as any node of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// It was found out before.
    Known,
    /// A node of it was seen since this one came.
    GoesOn,
    /// Nobody else is there.
    Begins,
    /// A node of it may be there, or gone.
    Unknown,
}

/// What a beat comes to.
#[derive(Debug)]
pub(super) struct Renewed {
    /// Another one than before, if that had been ended.
    pub(super) session: u64,
    /// There may be something to claim that was not there before.
    pub(super) freed: bool,
    /// But for the losses, which the handle counts.
    pub(super) beaten: Beaten,
}

/// The store's own clock, by which leases are judged and claims find what is due: tokio's, which tests can move.
#[derive(Debug, Clone, Copy)]
struct StoreClock {
    start: Instant,
    began_at: Timestamp,
}

impl StoreClock {
    fn timestamp(&self, at: Instant) -> Timestamp {
        let elapsed = at.saturating_duration_since(self.start);
        self.began_at + Millis::new(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::beginning_at(wall_clock())
    }
}

impl Sessions {
    pub(super) fn beginning_at(began_at: Timestamp) -> Self {
        let now = Instant::now();
        Self {
            last: 1,
            sole: 1,
            sole_settled: false,
            members: BTreeMap::new(),
            handles: BTreeMap::new(),
            last_handle: 0,
            clock: StoreClock { start: now, began_at },
            heard_at: now,
        }
    }

    pub(super) fn is_live(&self, session: u64) -> bool {
        session == self.sole || self.members.values().any(|member| member.session == session && !member.ended)
    }

    pub(super) fn sole(&self) -> u64 {
        self.sole
    }

    pub(super) fn change_sole(&mut self) -> u64 {
        self.sole = self.next();
        self.sole_settled = false;
        self.sole
    }

    /// A node is there that belongs to an era.
    pub(super) fn has_begun(&self) -> bool {
        let now = Instant::now();
        let is_there = |member: &Member| member.settled && !member.ended && member.expires_at >= now;
        self.sole_settled || self.members.values().any(is_there)
    }

    /// Whoever speaks belongs to an era that is there; a visitor only if one has the store to itself.
    pub(super) fn is_settled(&self, from: Option<u64>) -> bool {
        match from {
            Some(session) if session != self.sole => self.is_settled_member(session),
            Some(_) | None => self.sole_settled,
        }
    }

    fn is_settled_member(&self, session: u64) -> bool {
        self.members.values().any(|member| member.session == session && member.settled)
    }

    pub(super) fn era_of(&self, session: u64) -> Era {
        if session == self.sole {
            return if self.sole_settled { Era::Known } else { Era::Begins };
        }
        let Some(own) = self.members.values().find(|member| member.session == session) else { return Era::Unknown };
        let now = Instant::now();
        let others = || self.members.values().filter(|member| member.settled && member.session != session);
        if own.settled {
            Era::Known
        } else if others().any(|other| other.seen_at > own.started_at) {
            Era::GoesOn
        } else if others().any(|other| !other.ended && other.expires_at >= now) {
            Era::Unknown
        } else {
            Era::Begins
        }
    }

    pub(super) fn settle(&mut self, session: u64) {
        self.sole_settled |= session == self.sole;
        if let Some(own) = self.members.values_mut().find(|member| member.session == session) {
            own.settled = true;
        }
    }

    /// It will be told when a node of an era is seen.
    pub(super) fn wants_to_know(&mut self, session: u64) {
        if let Some(own) = self.members.values_mut().find(|member| member.session == session) {
            own.asks = true;
        }
    }

    pub(super) fn timestamp(&self, at: Instant) -> Timestamp {
        self.clock.timestamp(at)
    }

    /// A number for a handle, under which it is called.
    pub(super) fn add_handle(&mut self, called: &Arc<Notify>) -> u64 {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, Arc::downgrade(called));
        self.last_handle
    }

    /// Tells every other handle to look.
    pub(super) fn call_others(&mut self, handle: u64) {
        self.handles.retain(|_, called| called.strong_count() > 0);
        for (_, called) in self.handles.iter().filter(|(other, _)| **other != handle) {
            if let Some(called) = called.upgrade() {
                called.notify_one();
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn begin(&mut self, identity: &NodeIdentity, membership: &Membership) -> u64 {
        let (session, now) = (self.next(), Instant::now());
        let member = Member {
            session,
            boot_id: identity.boot_id.clone(),
            ended: false,
            started_at: now,
            seen_at: now,
            expires_at: now + membership.lease.as_duration(),
            membership: membership.clone(),
            settled: false,
            asks: false,
            said: Beat::default(),
        };
        self.members.insert(identity.name.clone(), member);
        session
    }

    /// For how long nobody could write, as `Membership::patience` says. Leases are put off by that, and no further than a
    /// beat would.
    fn forgive(&mut self, now: Instant) -> Duration {
        let live = || self.members.values().filter(|member| !member.ended);
        let patience = live().map(|member| member.membership.patience()).max().unwrap_or_default();
        let late = now.duration_since(self.heard_at).saturating_sub(patience.as_duration());
        self.heard_at = now;
        for member in self.members.values_mut().filter(|member| !member.ended && !late.is_zero()) {
            let most = now + member.membership.lease.as_duration();
            member.expires_at = member.expires_at.max(most.min(member.expires_at + late));
        }
        late
    }

    /// Ends those whose lease has run out by now, except one's own; their sessions.
    fn expire(&mut self, except: Option<u64>, now: Instant) -> Vec<u64> {
        let late = |member: &&mut Member| !member.ended && member.expires_at < now && Some(member.session) != except;
        let mut expired = Vec::new();
        for member in self.members.values_mut().filter(late) {
            member.ended = true;
            expired.push(member.session);
        }
        self.members.retain(|_, member| !member.ended || now.duration_since(member.seen_at) < KEPT_FOR);
        expired
    }

    fn look_again(&self, except: u64, now: Instant) -> Option<Millis> {
        let others = self.members.values().filter(|member| !member.ended && member.session != except);
        let left = others.map(|member| member.expires_at.saturating_duration_since(now)).min()?;
        Some(Millis::new(u64::try_from(left.as_millis()).unwrap_or(u64::MAX) + 1))
    }

    pub(super) fn rows(&self) -> Vec<NodeRow> {
        let now = Instant::now();
        let row = |(name, member): (&Arc<str>, &Member)| NodeRow {
            name: name.to_string(),
            boot_id: member.boot_id.to_string(),
            started_at: self.timestamp(member.started_at),
            seen_at: self.timestamp(member.seen_at),
            live: !member.ended && member.expires_at >= now,
            in_hand: member.said.in_hand,
            capacity: member.said.capacity,
        };
        self.members.iter().map(row).collect()
    }
}

impl Data {
    /// Opens a session under the name; one that is there is ended at once.
    pub(super) fn join(&mut self, identity: &NodeIdentity, membership: &Membership) -> u64 {
        self.forgive(Instant::now());
        let before = self.sessions.members.get(&identity.name).filter(|member| !member.ended);
        let before = before.map(|member| member.session);
        let session = self.sessions.begin(identity, membership);
        before.iter().for_each(|before| self.orphan(*before));
        session
    }

    /// Time in which nobody could write counts against nobody.
    fn forgive(&mut self, now: Instant) {
        let late = self.sessions.forgive(now);
        if !late.is_zero() {
            self.put_off_locks(late);
        }
    }

    /// Whether anybody's tasks became orphans by it, or a tenant free. A visitor has no session to except.
    pub(super) fn reap(&mut self, except: Option<u64>) -> bool {
        let now = Instant::now();
        self.forgive(now);
        let expired = self.sessions.expire(except, now);
        expired.iter().for_each(|session| self.orphan(*session));
        let opened = self.open_expired_locks(now);
        self.letters.retain(|_, letter| now.duration_since(letter.at) < KEPT_FOR);
        opened || !expired.is_empty()
    }

    pub(super) fn leave(&mut self, session: u64) {
        let member = self.sessions.members.values_mut().find(|member| member.session == session && !member.ended);
        if let Some(member) = member {
            (member.ended, member.seen_at) = (true, Instant::now());
            if !planted("who leaves keeps its tasks") {
                self.orphan(session);
            }
            self.see(session);
        }
    }

    /// A sign of life: if it belongs to an era, that is there, and all words were for it. Whoever is here and wants to know
    /// belongs to it too from now on: one that is busy may ask no more before this node is gone.
    fn see(&mut self, session: u64) {
        if self.sessions.is_settled_member(session) {
            self.keep_to_this_era();
            for member in self.sessions.members.values_mut().filter(|member| !member.ended) {
                member.settled |= member.asks;
            }
        }
    }

    /// Renews a session, or opens another if it was ended.
    pub(super) fn beat(&mut self, session: u64, membership: &Membership, beat: Beat) -> Result<Renewed, StoreError> {
        let Some(identity) = &membership.node else {
            return Ok(Renewed { session, freed: false, beaten: Beaten::default() });
        };
        let now = Instant::now();
        self.forgive(now);
        let session = match self.sessions.members.get(&identity.name) {
            Some(member) if member.session == session && !member.ended => session,
            Some(member) if member.session != session && !member.ended => {
                return Err(StoreError::Owned { path: identity.name.to_string(), pid: 0, command: String::new() });
            }
            Some(_) | None => self.sessions.begin(identity, membership),
        };
        if let Some(member) = self.sessions.members.get_mut(&identity.name) {
            member.seen_at = now;
            member.expires_at = now + membership.lease.as_duration();
            member.said = beat;
        }
        self.see(session);
        self.renew_locks(now, membership.lock_ttl);
        let freed = self.reap(Some(session));
        let beaten = Beaten {
            look_again: if freed { Some(Millis::ZERO) } else { self.sessions.look_again(session, now) },
            now: Some(self.sessions.timestamp(now)),
            ..Beaten::default()
        };
        Ok(Renewed { session, freed, beaten })
    }
}
