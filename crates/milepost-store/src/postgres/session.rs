//! Who this handle is to the others: its session, and the leases that are numbered in it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use milepost_core::time::Millis;
use tokio_postgres::types::Type;

use crate::error::StoreError;
use crate::nodes::Membership;

use super::connect::Server;

/// Leases of one session lie between its number and the next, so that a look at one tells whose it is.
const LEASES_PER_SESSION: i64 = 1 << 40;

/// The session that a lease was given out in.
pub(super) fn session_of(lease: u64) -> i64 {
    i64::try_from(lease).unwrap_or(i64::MAX) / LEASES_PER_SESSION
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) membership: Membership,
    /// The session's number, and the last lease given in it; none for a visitor.
    now: Mutex<Option<(i64, i64)>>,
    /// The session that is known to have found out which era it is in.
    settled: AtomicI64,
    /// How often it was lost.
    pub(super) losses: AtomicU64,
}

impl Session {
    /// A node takes the place of whoever had its name.
    pub(super) async fn open(server: &Server, membership: Membership) -> Result<Self, StoreError> {
        let session = Self { membership, now: Mutex::new(None), settled: AtomicI64::new(0), losses: AtomicU64::new(0) };
        session.begin(server).await?;
        Ok(session)
    }

    /// Begins anew under the same name.
    pub(super) async fn begin(&self, server: &Server) -> Result<(), StoreError> {
        let Some(node) = &self.membership.node else { return Ok(()) };
        let (name, boot) = (node.name.as_ref(), node.boot_id.as_ref());
        let (lease, patience) = (self.lease_ms(), millis(self.membership.patience()));
        let parameters: &super::connect::Parameters<'_> =
            &[(&name, Type::TEXT), (&boot, Type::TEXT), (&lease, Type::INT8), (&patience, Type::INT8)];
        let rows = server.beat("register this node", "SELECT @.register($1, $2, $3, $4)", parameters).await?;
        let number: i64 = rows[0].get(0);
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, number * LEASES_PER_SESSION));
        Ok(())
    }

    pub(super) fn is_settled(&self, session: i64) -> bool {
        self.settled.load(Ordering::Acquire) == session
    }

    pub(super) fn settle(&self, session: i64) {
        self.settled.store(session, Ordering::Release);
    }

    /// None for a visitor.
    pub(super) fn number(&self) -> Option<i64> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).map(|(number, _)| number)
    }

    /// A lease of this session, each only once; if it is over by now, nobody will take it.
    pub(super) fn new_lease(&self, session: i64) -> i64 {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        match now.as_mut() {
            Some((number, last)) if *number == session => {
                *last += 1;
                *last
            }
            _ => session * LEASES_PER_SESSION,
        }
    }

    pub(super) fn lease_ms(&self) -> i64 {
        millis(self.membership.lease)
    }

    pub(super) fn lock_ms(&self) -> i64 {
        millis(self.membership.lock_ttl)
    }
}

fn millis(length: Millis) -> i64 {
    i64::try_from(length.get()).unwrap_or(i64::MAX)
}
