//! What the tasks of a plan share, kept for the next who asks for one of them: reading it costs more than the task does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;

use crate::codec::{SharedPlan, damaged};
use crate::error::StoreError;

use super::connect::Server;

/// Plans kept, and how long a definition may be to be kept: some megabytes in all.
const MOST: usize = 1024;
const LONGEST: usize = 64 << 10;

/// By number, each with the revision that it was read at: an update may have changed it since.
#[derive(Debug, Default)]
pub(super) struct SharedPlans(Mutex<HashMap<i64, (i32, SharedPlan)>>);

/// A plan that could not be read speaks for itself; others are not kept from running by it.
pub(super) type Shared = HashMap<i64, Result<SharedPlan, String>>;

impl SharedPlans {
    /// Those of these numbers and revisions.
    pub(super) async fn read(&self, server: &Server, wanted: &[(i64, i32)]) -> Result<Shared, StoreError> {
        let mut found = Shared::new();
        let mut missing = Vec::new();
        {
            let kept = self.plans();
            for (no, revision) in wanted {
                match kept.get(no) {
                    Some((of, plan)) if of == revision => drop(found.insert(*no, Ok(plan.clone()))),
                    _ => missing.push(*no),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let sql = "SELECT d.no, d.definition, p.revision FROM @.plan_definitions d JOIN @.plans p ON p.no = d.no \
                   WHERE d.no = ANY ($1)";
        let rows = server.read("read plans", sql, &[(&missing, Type::INT8_ARRAY)]).await?;
        let mut kept = self.plans();
        for row in rows {
            let (no, text, revision): (i64, &str, i32) = (row.get(0), row.get(1), row.get(2));
            let plan = serde_json::from_str(text).map(SharedPlan::new);
            let plan = plan.map_err(|error| damaged(format!("the definition of plan {no}"), error).to_string());
            if let Ok(plan) = &plan
                && text.len() <= LONGEST
            {
                if kept.len() >= MOST {
                    kept.clear();
                }
                kept.insert(no, (revision, plan.clone()));
            }
            found.insert(no, plan);
        }
        Ok(found)
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<i64, (i32, SharedPlan)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
