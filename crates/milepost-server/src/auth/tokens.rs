//! The store's tokens, kept at hand: a request is not worth a read, and a revocation holds within seconds everywhere.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use milepost_core::time::Timestamp;
use milepost_store::{Store, StoreError, TokenRow};
use tokio::sync::Mutex;

use super::caller::Caller;
use super::token::Shown;
use crate::problem::{Answer, Problem};

/// What another process revoked is refused here after this long.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Tokens that nobody knows make the store be read at most this often; who shows one waits for it.
const READ_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// A store that does not answer is away.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// While the store is away, what was known last still counts for this long: the API can say so instead of locking
/// everyone out, and a revocation cannot be put off for ever by cutting the server off from its store.
const TRUSTED_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    known: RwLock<Option<Arc<Known>>>,
    /// Held by the one that reads; says when the last attempt began.
    reading: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    by_id: HashMap<String, TokenRow>,
    read_at: Instant,
}

impl Tokens {
    /// Who this token speaks for. Unknown ids and wrong secrets are told apart by nobody.
    pub(crate) async fn prove(&self, store: &dyn Store, text: &str, now: Timestamp) -> Answer<Caller> {
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "invalid-token", detail);
        let unknown = || refused("this token is not known here");
        let shown = Shown::parse(text).ok_or_else(unknown)?;
        let known = self.look_up(store, shown.id).await?;
        let row = known.by_id.get(shown.id).filter(|row| shown.proves(row)).ok_or_else(unknown)?;
        if row.revoked_at.is_some() {
            return Err(refused("this token was revoked"));
        }
        if row.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(refused("this token has expired"));
        }
        Ok(Caller::of(row))
    }

    /// The next request reads the store: something was changed here.
    pub(crate) fn forget(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn look_up(&self, store: &dyn Store, id: &str) -> Answer<Arc<Known>> {
        let arrived = Instant::now();
        if let Some(known) = self.known()
            && known.by_id.contains_key(id)
            && arrived.duration_since(known.read_at) < READ_EVERY
        {
            return Ok(known);
        }
        let mut last_try = self.reading.lock().await;
        // Somebody else may have read it while this one waited.
        if let Some(known) = self.known()
            && known.read_at >= arrived
        {
            return Ok(known);
        }
        if let (Some(last), Some(_)) = (*last_try, self.known()) {
            tokio::time::sleep_until((last + READ_AT_MOST_EVERY).into()).await;
        }
        let began = Instant::now();
        *last_try = Some(began);
        match read(store).await {
            Ok(rows) => {
                let by_id = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
                let known = Arc::new(Known { by_id, read_at: began });
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
                Ok(known)
            }
            Err(problem) => match self.known() {
                Some(known) if known.by_id.contains_key(id) && began.duration_since(known.read_at) < TRUSTED_FOR => {
                    tracing::warn!("tokens could not be read; those known before still count");
                    Ok(known)
                }
                Some(_) | None => Err(problem),
            },
        }
    }

    fn known(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn read(store: &dyn Store) -> Answer<Vec<TokenRow>> {
    let answer = tokio::time::timeout(READ_WITHIN, store.tokens()).await;
    let late = |_| StoreError::Unavailable {
        backend: "the store",
        operation: "read the tokens",
        source: "no answer in time".into(),
    };
    Ok(answer.map_err(late)??)
}
