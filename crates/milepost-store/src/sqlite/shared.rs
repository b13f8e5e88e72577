//! What the tasks of a plan share, kept for the next who asks for one of them: reading it costs more than the task does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use crate::codec::SharedPlan;
use crate::error::StoreError;

use super::codec::{decode_definition, unavailable};

/// Plans kept, and how long a definition may be to be kept: some megabytes in all.
const MOST: usize = 128;
const LONGEST: usize = 64 << 10;

/// By number, each with the digest of the definition it was read from: an update may have changed that since.
#[derive(Debug, Default)]
pub(super) struct SharedPlans(Mutex<HashMap<i64, (Vec<u8>, SharedPlan)>>);

impl SharedPlans {
    pub(super) fn read(&self, connection: &Connection, no: i64) -> Result<SharedPlan, StoreError> {
        let digest: Vec<u8> = connection
            .prepare_cached("SELECT digest FROM plans WHERE no = ?1")
            .and_then(|mut statement| statement.query_row([no], |row| row.get(0)))
            .map_err(unavailable("read a plan"))?;
        if let Some((of, plan)) = self.plans().get(&no)
            && *of == digest
        {
            return Ok(plan.clone());
        }
        let text: String = connection
            .prepare_cached("SELECT definition FROM plans WHERE no = ?1")
            .and_then(|mut statement| statement.query_row([no], |row| row.get(0)))
            .map_err(unavailable("read a plan"))?;
        let plan = SharedPlan::new(decode_definition(no, &text, &digest)?);
        if text.len() <= LONGEST {
            let mut plans = self.plans();
            if plans.len() >= MOST {
                plans.clear();
            }
            plans.insert(no, (digest, plan.clone()));
        }
        Ok(plan)
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<i64, (Vec<u8>, SharedPlan)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
