//! What time brings: tenant locks that run out, and those that are to be kept.

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::eras::see;
use super::sql::{NOW, texts};

/// Letters and answers are forgotten after an hour, and nodes that were not seen for a day.
const LETTERS_KEPT_FOR: i64 = 3_600_000;
const NODES_KEPT_FOR: i64 = 86_400_000;

impl Turn {
    /// Sessions that have run out were ended when the transaction began.
    pub(super) async fn sweep(&mut self) -> Sql<()> {
        let ttl = self.desk.lock_ttl.get() as i64;
        // Kept for whatever will go on by itself or is somebody's: all but what a lost node left in a plan whose
        // recovery is up to a person.
        let renew = format!(
            "UPDATE milepost_locks l JOIN task_unit_runtimes r ON r.id = l.task JOIN sync_tasks p ON p.id = r.task_id \
             LEFT JOIN milepost_nodes n ON n.session = r.lease DIV {leases} AND n.ended = 0 \
             SET l.expires_at = {NOW} + {ttl} \
             WHERE l.expires_at >= {NOW} AND l.expires_at < {NOW} + {ttl} DIV 3 * 2 \
             AND (r.queue NOT IN (2, 4, 7) OR n.session IS NOT NULL OR COALESCE(p.recovery, 'auto') = 'auto')",
            leases = super::codec::LEASES_PER_SESSION,
        );
        let forget = format!(
            "DELETE FROM milepost_letters WHERE at < {NOW} - {LETTERS_KEPT_FOR}; \
             DELETE FROM milepost_nodes WHERE ended = 1 AND seen_at < {NOW} - {NODES_KEPT_FOR}"
        );
        let seen = self.desk.own.map_or_else(|| "DO 0".to_owned(), see);
        self.flush().await?;
        let sql = format!("{renew}; {forget}; {seen}; SELECT tenant FROM milepost_locks WHERE expires_at < {NOW}");
        let mut tenants: Vec<String> = Vec::new();
        for row in self.ask_one(&sql).await? {
            let mut columns = Columns::from(row);
            let tenant = columns.next::<String>()?;
            tracing::warn!(tenant, "the lock of a tenant has run out; others may have it");
            tenants.push(tenant);
        }
        if tenants.is_empty() {
            return Ok(());
        }
        let list = texts(tenants.iter().map(String::as_str));
        self.desk.writes.others.push(format!("DELETE FROM milepost_locks WHERE tenant IN ({list})"));
        let freed = tenants.into_iter().filter_map(|tenant| milepost_core::id::Tenant::parse(tenant).ok());
        self.desk.freed.extend(freed);
        self.wake_next_in_line().await
    }
}
