//! Tasks of a claim whose answer was lost, if they are this node's after all.

use crate::error::StoreError;
use crate::model::StoredTask;

use super::codec::{Columns, LEASES_PER_SESSION, Sql, unavailable};
use super::sql::numbers;
use super::store::Shared;

impl Shared {
    pub(super) async fn find_doubtful(&self) -> Result<Vec<StoredTask>, StoreError> {
        let mut doubtful = self.doubtful.take();
        // Those of an earlier session are orphans by now, and claimed like any other.
        doubtful.retain(|stored| Some(stored.epoch / LEASES_PER_SESSION) == self.session());
        if doubtful.is_empty() {
            return Ok(Vec::new());
        }
        let list = numbers(doubtful.iter().map(|stored| stored.key.no));
        let sql = format!("SELECT lease FROM task_unit_runtimes WHERE id IN ({list}) AND queue = 2");
        let found = match self.server.ask("claim", &sql).await {
            Ok(found) => found,
            Err(error) => {
                self.doubtful.keep(doubtful);
                return Err(error);
            }
        };
        let leases = found.concat().into_iter().map(|row| Columns::from(row).next::<u64>()).collect::<Sql<Vec<u64>>>();
        let leases = leases.map_err(unavailable("claim"))?;
        doubtful.retain(|stored| leases.contains(&stored.epoch));
        Ok(doubtful)
    }
}
