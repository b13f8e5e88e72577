//! What clients call their submissions, and what they were answered, for a day.

use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::model::{REQUESTS_KEPT_FOR, RequestKey, Submitted};

use super::writer::{Performed, Writer};
use crate::codec::damaged;

/// Old ones that go with each new one: more than one, so that there are never many, and few, so that nobody waits.
const FORGOTTEN_AT_ONCE: i64 = 8;

impl Writer {
    /// The answer that the request has had already.
    pub(super) fn replay(&self, request: &RequestKey, now: Timestamp) -> Performed<Option<Submitted>> {
        let kept = self
            .connection
            .prepare_cached("SELECT digest, answer FROM requests WHERE key = ?1 AND at > ?2")?
            .query_row(params![request.key, (now - REQUESTS_KEPT_FOR).as_millis()], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?))
            })
            .optional()?;
        Ok(match kept {
            None => Ok(None),
            Some((digest, _)) if digest != request.digest => Err(StoreError::KeyReused { key: request.key.clone() }),
            Some((_, answer)) => match serde_json::from_str::<Submitted>(&answer) {
                Ok(answer) => Ok(Some(Submitted { replayed: true, ..answer })),
                Err(error) => Err(damaged(format!("the answer kept for the key `{}`", request.key), error)),
            },
        })
    }

    pub(super) fn keep_request(
        &self,
        request: &RequestKey,
        answer: &Submitted,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "DELETE FROM requests WHERE key IN (SELECT key FROM requests WHERE at <= ?1 ORDER BY at LIMIT ?2)",
            )?
            .execute(params![(now - REQUESTS_KEPT_FOR).as_millis(), FORGOTTEN_AT_ONCE])?;
        let answer = serde_json::to_string(answer).expect("names, numbers and times are JSON");
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO requests (key, digest, at, answer) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![request.key, request.digest.as_slice(), now.as_millis(), answer])?;
        Ok(())
    }
}
