//! What clients call their submissions, and what they were answered, for a day.

use std::collections::HashMap;

use milepost_core::time::Timestamp;
use mysql_async::Row;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::{REQUESTS_KEPT_FOR, RequestKey, Submitted};

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::sql::{bytes, text};

/// Old ones that go with each new one: more than one, so that there are never many, and few, so that nobody waits.
const FORGOTTEN_AT_ONCE: usize = 8;

/// Requests that were answered before.
#[derive(Debug, Default)]
pub(super) struct Requests(HashMap<String, Kept>);

#[derive(Debug)]
struct Kept {
    digest: Vec<u8>,
    at: Timestamp,
    answer: String,
}

impl Requests {
    pub(super) fn read(rows: Vec<Row>) -> Sql<Self> {
        let mut requests = HashMap::new();
        for row in rows {
            let mut columns = Columns::from(row);
            let name = columns.next()?;
            let kept = Kept { digest: columns.next()?, at: columns.time()?, answer: columns.next()? };
            requests.insert(name, kept);
        }
        Ok(Self(requests))
    }

    /// The answer that the request has had already.
    pub(super) fn replay(&self, request: &RequestKey, now: Timestamp) -> Result<Option<Submitted>, StoreError> {
        let Some(kept) = self.0.get(&request.key).filter(|kept| now < kept.at + REQUESTS_KEPT_FOR) else {
            return Ok(None);
        };
        if kept.digest != request.digest {
            return Err(StoreError::KeyReused { key: request.key.clone() });
        }
        let answer: Submitted = serde_json::from_str(&kept.answer)
            .map_err(|error| damaged(format!("the answer kept for the key `{}`", request.key), error))?;
        Ok(Some(Submitted { replayed: true, ..answer }))
    }
}

impl Turn {
    pub(super) fn keep_request(
        &mut self,
        requests: &mut Requests,
        request: &RequestKey,
        answer: &Submitted,
        now: Timestamp,
    ) {
        let answer = serde_json::to_string(answer).expect("names, numbers and times are JSON");
        let (before, at) = ((now - REQUESTS_KEPT_FOR).as_millis(), now.as_millis());
        let others = &mut self.desk.writes.others;
        others
            .push(format!("DELETE FROM milepost_requests WHERE at <= {before} ORDER BY at LIMIT {FORGOTTEN_AT_ONCE}"));
        others.push(format!(
            "INSERT INTO milepost_requests (name, digest, at, answer) VALUES ({}, {}, {at}, {}) \
             ON DUPLICATE KEY UPDATE digest = VALUES(digest), at = VALUES(at), answer = VALUES(answer)",
            text(&request.key),
            bytes(&request.digest),
            text(&answer)
        ));
        let kept = Kept { digest: request.digest.to_vec(), at: now, answer };
        requests.0.insert(request.key.clone(), kept);
    }
}
