//! Time in which nobody could write: it counts against nobody. When any node was last heard of is kept apart from what
//! writers lock, so that a beat waits for none of them.

use milepost_core::time::Timestamp;

use crate::error::StoreError;

use super::begin::Turn;
use super::codec::{Columns, Sql, unavailable};
use super::read::first;
use super::sql::NOW;
use super::store::Shared;

/// Whether, and for how long, nobody was heard of beyond what those that live need to say that they do.
pub(super) fn late() -> String {
    format!(
        "(SELECT {NOW} - h.at - COALESCE((SELECT MAX(patience_ms) FROM milepost_nodes WHERE ended = 0), 0) \
         FROM milepost_heard h WHERE h.id = 1)"
    )
}

/// Somebody is heard of. If it is the first in too long, that has to be made good before it counts.
pub(super) fn heard() -> String {
    // Not in one statement: that would lock the nodes, and wait for whoever changes them.
    format!(
        "SELECT COALESCE(MAX(patience_ms), 0) INTO @mp_patience FROM milepost_nodes WHERE ended = 0; \
         UPDATE milepost_heard SET at = {NOW} WHERE id = 1 AND {NOW} - at <= @mp_patience"
    )
}

/// Puts every lease off by what it is late, no further than a beat would, and every lock. The row of `milepost_heard` is
/// locked first, so that it is done once; others that do it wait for it.
pub(super) fn forgive(lock_ttl: u64) -> String {
    format!(
        "SELECT at FROM milepost_heard WHERE id = 1 FOR UPDATE; SELECT {NOW}, GREATEST({late}, 0) INTO @mp_now, @mp_late; \
         UPDATE milepost_nodes SET expires_at = GREATEST(expires_at, LEAST(expires_at + @mp_late, @mp_now + lease_ms)) \
         WHERE ended = 0; \
         UPDATE milepost_locks SET expires_at = GREATEST(expires_at, LEAST(expires_at + @mp_late, @mp_now + {lock_ttl})); \
         UPDATE milepost_heard SET at = @mp_now WHERE id = 1",
        late = late()
    )
}

impl Turn {
    /// Before anybody is judged.
    pub(super) async fn forgive(&mut self) -> Sql<()> {
        tracing::info!("nobody could write for a while; leases and locks are put off by as much");
        let sql = forgive(self.desk.lock_ttl.get());
        self.ask(&sql).await.map(drop)
    }
}

impl Shared {
    /// Outside of a writer's turn.
    pub(super) async fn forgive(&self) -> Result<(), StoreError> {
        let sql = format!("START TRANSACTION; {}; COMMIT", forgive(self.membership.lock_ttl.get()));
        self.server.ask("put leases off", &sql).await.map(drop)
    }

    /// A visitor waits for somebody: others' leases are looked at, though it has none.
    pub(super) async fn look_after_others(&self) -> Result<Timestamp, StoreError> {
        let sql = format!("{}; SELECT {NOW}, {} > 0", heard(), late());
        let unavailable = unavailable("look after other nodes");
        let row = first(self.server.ask("look after other nodes", &sql).await?);
        let row = row.ok_or_else(|| unavailable(mysql_async::Error::Other("nothing was answered".into())))?;
        let mut columns = Columns::from(row);
        let (now, late) = (columns.time().map_err(&unavailable)?, columns.flag().map_err(&unavailable)?);
        if late {
            self.forgive().await?;
        }
        Ok(now)
    }
}
