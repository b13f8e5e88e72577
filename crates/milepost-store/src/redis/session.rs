//! This process's place among the nodes, and the leases that it gives to the tasks it takes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Leases of one session lie between its number and the next, so that a look at one tells whose it is.
const LEASES_PER_SESSION: u64 = 1 << 40;

/// 0 for a visitor.
#[derive(Debug, Default)]
pub(super) struct Session {
    number: AtomicU64,
    leases: AtomicU64,
    losses: AtomicU64,
    claims: AtomicU64,
    /// The session that is known to have found out which era it is in.
    settled: AtomicU64,
}

impl Session {
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    pub(super) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the lease was lost.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    pub(super) fn is_settled(&self, session: u64) -> bool {
        self.settled.load(Ordering::Acquire) == session
    }

    pub(super) fn settle(&self, session: u64) {
        self.settled.store(session, Ordering::Release);
    }

    /// A lease of the session that the caller has seen; every claim gets a new one.
    pub(super) fn new_lease(&self, session: u64) -> u64 {
        session * LEASES_PER_SESSION + 1 + self.leases.fetch_add(1, Ordering::Relaxed) % (LEASES_PER_SESSION - 1)
    }

    /// Counts what is sent to take tasks.
    pub(super) fn new_claim(&self) -> u64 {
        self.claims.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn last_claim(&self) -> u64 {
        self.claims.load(Ordering::Acquire)
    }
}

pub(super) fn is_of(lease: u64, session: u64) -> bool {
    session != 0 && lease / LEASES_PER_SESSION == session
}
