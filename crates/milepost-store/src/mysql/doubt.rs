//! Tasks of a claim whose answer was lost, if they are this node's after all.

use crate::error::StoreError;
use crate::model::{ClaimRequest, StoredTask};

use super::codec::{Columns, Sql, session_of, unavailable};
use super::sql::numbers;
use super::store::Shared;

impl Shared {
    /// Under the lock that the claim had, if it has not ended: so it has by the time anything is read here.
    pub(super) async fn find_doubtful(&self, request: &ClaimRequest) -> Result<Vec<StoredTask>, StoreError> {
        let session = self.session();
        let mut doubtful = self.doubtful.take(request, |lease| Some(session_of(lease)) == session);
        if doubtful.is_empty() {
            return Ok(doubtful);
        }
        let list = numbers(doubtful.iter().map(|stored| stored.key.no));
        let sql = format!(
            "START TRANSACTION; SELECT id FROM milepost_counters WHERE id = 1 FOR UPDATE; \
             SELECT lease FROM task_unit_runtimes WHERE id IN ({list}) AND queue = 2 LOCK IN SHARE MODE; COMMIT"
        );
        let found = match self.server.ask("claim", &sql).await {
            Ok(mut found) => found.pop().unwrap_or_default(),
            Err(error) => {
                self.doubtful.keep(doubtful);
                return Err(error);
            }
        };
        let leases = found.into_iter().map(|row| Columns::from(row).next::<u64>()).collect::<Sql<Vec<u64>>>();
        let leases = leases.map_err(unavailable("claim"))?;
        doubtful.retain(|stored| leases.contains(&stored.epoch));
        Ok(doubtful)
    }
}
