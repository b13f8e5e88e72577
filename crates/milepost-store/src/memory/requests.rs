//! What clients call their submissions, and what they were answered, for a day.

use std::collections::HashMap;

use milepost_core::time::Timestamp;

use crate::error::StoreError;
use crate::model::{REQUESTS_KEPT_FOR, RequestKey, Submitted};

#[derive(Debug, Default)]
pub(super) struct Requests(HashMap<String, Kept>);

#[derive(Debug)]
struct Kept {
    digest: [u8; 32],
    at: Timestamp,
    answer: Submitted,
}

impl Requests {
    /// The answer that the request has had already.
    pub(super) fn replay(&self, request: &RequestKey, now: Timestamp) -> Result<Option<Submitted>, StoreError> {
        match self.0.get(&request.key) {
            Some(kept) if now >= kept.at + REQUESTS_KEPT_FOR => Ok(None),
            Some(kept) if kept.digest != request.digest => Err(StoreError::KeyReused { key: request.key.clone() }),
            Some(kept) => Ok(Some(Submitted { replayed: true, ..kept.answer.clone() })),
            None => Ok(None),
        }
    }

    pub(super) fn keep(&mut self, request: RequestKey, answer: &Submitted, now: Timestamp) {
        self.0.retain(|_, kept| now < kept.at + REQUESTS_KEPT_FOR);
        self.0.insert(request.key, Kept { digest: request.digest, at: now, answer: answer.clone() });
    }
}
