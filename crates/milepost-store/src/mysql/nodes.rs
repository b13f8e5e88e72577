//! Who is there: a session for each node, renewed by its beat and judged by the store's clock.

use std::sync::atomic::Ordering;

use milepost_core::time::{Millis, Timestamp};
use mysql_async::Row;
use tokio::time::Instant;

use crate::clock::ClockReading;
use crate::error::StoreError;
use crate::nodes::{Beat, Beaten, NodeIdentity, NodeRow};

use super::codec::{Columns, LEASES_PER_SESSION, Sql, unavailable};
use super::connect::is_collision;
use super::eras::{SAID, is_settled, see};
use super::heard::{forgive, heard, late};
use super::read::first;
use super::sql::{NOW, text};
use super::store::Shared;

const TRIES: u32 = 5;

impl Shared {
    /// Begins a new session under the node's name, in the place of whatever had it before.
    pub(super) async fn register(&self, node: &NodeIdentity) -> Result<(), StoreError> {
        let (name, lease, patience) = (text(&node.name), self.membership.lease.get(), self.membership.patience().get());
        let sql = format!(
            "START TRANSACTION; \
             UPDATE milepost_counters SET sessions = sessions + 1, offered = offered + 1 WHERE id = 1; {forgive}; \
             INSERT INTO milepost_nodes (name, session, boot_id, started_at, seen_at, expires_at, lease_ms, patience_ms) \
             SELECT {name}, sessions, {}, {NOW}, {NOW}, {NOW} + {lease}, {lease}, {patience} FROM milepost_counters WHERE id = 1 \
             ON DUPLICATE KEY UPDATE session = VALUES(session), boot_id = VALUES(boot_id), \
             started_at = VALUES(started_at), seen_at = VALUES(seen_at), expires_at = VALUES(expires_at), ended = 0, \
             in_hand = 0, capacity = 0, lease_ms = VALUES(lease_ms), patience_ms = VALUES(patience_ms); \
             SELECT session FROM milepost_nodes WHERE name = {name}; COMMIT",
            text(&node.boot_id),
            forgive = forgive(self.membership.lock_ttl.get()),
        );
        let answers = self.ask_in_turn("begin a session", &sql).await?;
        let session =
            answers.into_iter().next_back().unwrap_or_default().pop().map_or(Ok(0), |row| Columns::from(row).natural());
        self.set_session(session.map_err(unavailable("begin a session"))?);
        Ok(())
    }

    /// A transaction of its own, again if it met another that waited for it.
    async fn ask_in_turn(&self, doing: &'static str, sql: &str) -> Result<Vec<Vec<Row>>, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.server.ask(doing, sql).await {
                Err(StoreError::Unavailable { source, .. })
                    if tries < TRIES && source.downcast_ref().is_some_and(is_collision) => {}
                answers => return answers,
            }
        }
    }

    pub(super) async fn read_clock(&self) -> Result<ClockReading, StoreError> {
        let asked = Instant::now();
        let row = first(self.server.ask("read its clock", &format!("SELECT {NOW}")).await?);
        let at = row.map_or(Ok(Timestamp::default()), |row| Columns::from(row).time());
        Ok(ClockReading::answered(asked, at.map_err(unavailable("read its clock"))?))
    }

    pub(super) async fn leave(&self) -> Result<(), StoreError> {
        let Some(session) = self.session() else { return Ok(()) };
        let sql = format!(
            "START TRANSACTION; UPDATE milepost_counters SET offered = offered + 1 WHERE id = 1; \
             {}; UPDATE milepost_nodes SET ended = 1, seen_at = {NOW} WHERE session = {session} AND ended = 0; COMMIT",
            see(session)
        );
        self.ask_in_turn("leave", &sql).await.map(drop)
    }

    /// Answers too whether there is something to sweep.
    pub(super) async fn beat(&self, beat: Beat) -> Result<(Beaten, bool), StoreError> {
        let (Some(node), Some(session)) = (&self.membership.node, self.session()) else {
            let now = Some(self.look_after_others().await?);
            return Ok((Beaten { now, ..Beaten::default() }, true));
        };
        let (lease, ttl) = (self.membership.lease.get(), self.membership.lock_ttl.get());
        let sql = format!(
            "{heard}; UPDATE milepost_nodes SET seen_at = {NOW}, expires_at = {NOW} + {lease}, in_hand = {}, capacity = {} \
             WHERE name = {} AND session = {session} AND ended = 0; \
             SELECT ROW_COUNT(), {look}, \
             (SELECT MIN(expires_at) - {NOW} FROM milepost_nodes WHERE ended = 0 AND session <> {session}), \
             (SELECT COUNT(*) FROM milepost_locks WHERE expires_at < {NOW} + {ttl} DIV 3 * 2), {NOW}, {late} > 0, \
             {settled} AND {SAID} FROM milepost_counters WHERE id = 1",
            beat.in_hand,
            beat.capacity,
            text(&node.name),
            look = self.look_columns(),
            heard = heard(),
            late = late(),
            settled = is_settled(session),
        );
        let unavailable = unavailable("renew the lease");
        let row = first(self.server.ask("renew the lease", &sql).await?);
        let row = row.ok_or_else(|| unavailable(mysql_async::Error::Other("the row of counters is gone".into())))?;
        let seen = Seen::read(row).map_err(&unavailable)?;
        self.watch.looked(seen.offered, seen.letters);
        if seen.late {
            self.forgive().await?;
        }
        let look_again = seen.next_expiry.map(|left| Millis::new((left + 1).max(0).unsigned_abs()));
        let sweep = seen.next_expiry.is_some_and(|left| left < 0) || seen.locks > 0 || seen.said;
        if seen.renewed {
            let losses = self.losses.load(Ordering::Acquire);
            return Ok((Beaten { losses, look_again, now: Some(seen.now) }, sweep));
        }
        self.refuse_if_replaced(node, session).await?;
        tracing::warn!(node = %node.name, "the lease had run out and others were let in; the node begins a new session");
        let losses = self.losses.fetch_add(1, Ordering::AcqRel) + 1;
        self.register(node).await?;
        Ok((Beaten { losses, look_again, now: Some(seen.now) }, sweep))
    }

    /// Another process has the name now; a session that this one began without hearing of it is its own.
    async fn refuse_if_replaced(&self, node: &NodeIdentity, session: u64) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT boot_id FROM milepost_nodes \
             WHERE name = {} AND session <> {session} AND ended = 0 AND boot_id <> {}",
            text(&node.name),
            text(&node.boot_id)
        );
        let Some(row) = first(self.server.ask("renew the lease", &sql).await?) else { return Ok(()) };
        let boot_id: String = Columns::from(row).next().map_err(unavailable("renew the lease"))?;
        let path = format!("the name `{}` on {}", node.name, self.server.name);
        Err(StoreError::Owned { path, pid: 0, command: format!(" (started as {boot_id})") })
    }

    pub(super) async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let sql = format!(
            "SELECT name, boot_id, started_at, seen_at, ended = 0 AND expires_at >= {NOW}, in_hand, capacity \
             FROM milepost_nodes ORDER BY name"
        );
        let rows = self.server.ask("list nodes", &sql).await?.concat();
        let node = |row: Row| {
            let mut columns = Columns::from(row);
            Ok(NodeRow {
                name: columns.next()?,
                boot_id: columns.next()?,
                started_at: columns.time()?,
                seen_at: columns.time()?,
                live: columns.flag()?,
                in_hand: columns.next()?,
                capacity: columns.next()?,
            })
        };
        rows.into_iter().map(node).collect::<Sql<_>>().map_err(unavailable("list nodes"))
    }

    pub(super) fn first_lease_of(session: u64) -> u64 {
        session * LEASES_PER_SESSION + 1
    }
}

/// What a beat sees beside its own lease.
struct Seen {
    renewed: bool,
    offered: i64,
    letters: i64,
    /// Until another node's lease runs out.
    next_expiry: Option<i64>,
    /// Locks to be renewed, or run out.
    locks: i64,
    now: Timestamp,
    /// Nobody was heard of for too long.
    late: bool,
    /// Words that were for this node's era.
    said: bool,
}

impl Seen {
    fn read(row: Row) -> Sql<Self> {
        let mut columns = Columns::from(row);
        Ok(Self {
            renewed: columns.next::<i64>()? > 0,
            offered: columns.next()?,
            letters: columns.next()?,
            next_expiry: columns.maybe()?,
            locks: columns.next()?,
            now: columns.time()?,
            late: columns.flag()?,
            said: columns.flag()?,
        })
    }
}
