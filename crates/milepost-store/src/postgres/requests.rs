//! What clients call their submissions, and what they were answered, for a day.

use milepost_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::{REQUESTS_KEPT_FOR, RequestKey, Submitted};

use super::store::Inner;

/// An answer that is kept in the commit that it speaks of.
pub(super) struct KeptAnswer<'a> {
    pub(super) key: &'a str,
    pub(super) digest: &'a [u8],
    pub(super) text: String,
}

impl<'a> KeptAnswer<'a> {
    pub(super) fn new(request: &'a RequestKey, answer: &Submitted) -> Self {
        let text = serde_json::to_string(answer).expect("names, numbers and times are JSON");
        Self { key: &request.key, digest: &request.digest, text }
    }
}

impl Inner {
    /// The answer that the request has had already.
    pub(super) async fn replay(&self, request: &RequestKey, now: Timestamp) -> Result<Option<Submitted>, StoreError> {
        let since = (now - REQUESTS_KEPT_FOR).as_millis();
        let sql = "SELECT digest, answer FROM @.requests WHERE key = $1 AND at > $2";
        let parameters: &super::connect::Parameters<'_> = &[(&request.key, Type::TEXT), (&since, Type::INT8)];
        let rows = self.server.read("look up a request", sql, parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (digest, answer): (&[u8], &str) = (row.get(0), row.get(1));
        if digest != request.digest {
            return Err(StoreError::KeyReused { key: request.key.clone() });
        }
        let answer: Submitted = serde_json::from_str(answer)
            .map_err(|error| damaged(format!("the answer kept for the key `{}`", request.key), error))?;
        Ok(Some(Submitted { replayed: true, ..answer }))
    }
}
