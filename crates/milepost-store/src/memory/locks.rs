//! Tenant locks of nodes that share the store: they open by themselves, unless somebody renews them.

use std::time::Duration;

use milepost_core::id::Tenant;
use milepost_core::time::Millis;
use tokio::time::Instant;

use super::data::Data;
use super::line::Place;

impl Data {
    /// Whether any of them opened.
    pub(super) fn open_expired_locks(&mut self, now: Instant) -> bool {
        let expired = |lock: &super::data::Lock| lock.expires_at.is_some_and(|at| at < now);
        let open: Vec<Tenant> =
            self.locks.iter().filter(|(_, lock)| expired(lock)).map(|(tenant, _)| tenant.clone()).collect();
        for tenant in &open {
            self.locks.remove(tenant);
            self.look_at_tenant(tenant);
        }
        !open.is_empty()
    }

    pub(super) fn put_off_locks(&mut self, by: Duration) {
        for expires_at in self.locks.values_mut().filter_map(|lock| lock.expires_at.as_mut()) {
            *expires_at += by;
        }
    }

    /// Renews those of which less than two thirds are left. What waits for a person to take it up keeps its tenant no
    /// longer than its lock lasts.
    pub(super) fn renew_locks(&mut self, now: Instant, ttl: Millis) {
        let ttl = ttl.as_duration();
        let manual = |no: i64| self.entry(no).place == Place::Recovery { automatic: false };
        let due = |lock: &super::data::Lock| {
            let left = lock.expires_at.map(|at| at.saturating_duration_since(now));
            left.is_some_and(|left| !left.is_zero() && left < ttl * 2 / 3) && !manual(lock.task)
        };
        let renewed: Vec<Tenant> =
            self.locks.iter().filter(|(_, lock)| due(lock)).map(|(tenant, _)| tenant.clone()).collect();
        for tenant in renewed {
            if let Some(lock) = self.locks.get_mut(&tenant) {
                lock.expires_at = Some(now + ttl);
            }
        }
    }
}
