//! Keys to the API, without their secrets.

use milepost_core::api::Scope;
use milepost_core::id::Tenant;
use milepost_core::time::Timestamp;
use redis::Value;
use serde::{Deserialize, Serialize};

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::TokenRow;

use super::answer::Answer;
use super::link::unavailable;
use super::shared::Shared;

#[derive(Serialize, Deserialize)]
struct Kept {
    id: String,
    name: String,
    hash: [u8; 32],
    scope: Scope,
    tenants: Vec<Tenant>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

/// Oldest first.
pub(super) async fn tokens(shared: &Shared) -> Result<Vec<TokenRow>, StoreError> {
    let mut call = redis::cmd("HVALS");
    call.arg(shared.prelude.key("tokens"));
    let kept = Answer::new(shared.link.ask(&call).await.map_err(unavailable("list tokens"))?)?;
    let mut tokens = Vec::new();
    for index in 0..kept.len() {
        // A token whose scope or tenants cannot be read opens nothing, rather than everything.
        let Kept { id, name, hash, scope, tenants, created_at, expires_at, revoked_at } =
            serde_json::from_str(kept.text(index)?).map_err(|error| damaged("a token", error))?;
        tokens.push(TokenRow { id, name, hash, scope, tenants, created_at, expires_at, revoked_at });
    }
    tokens.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    Ok(tokens)
}

pub(super) async fn put_token(shared: &Shared, token: TokenRow) -> Result<(), StoreError> {
    let TokenRow { id, name, hash, scope, tenants, created_at, expires_at, revoked_at } = token;
    let kept = Kept { id: id.clone(), name, hash, scope, tenants, created_at, expires_at, revoked_at };
    let text = serde_json::to_string(&kept).expect("names, numbers and times are JSON");
    let mut call = redis::cmd("HSET");
    call.arg(shared.prelude.key("tokens")).arg(id).arg(text);
    shared.stats.count(1, 0);
    shared.link.ask(&call).await.map(|_: Value| ()).map_err(unavailable("keep a token"))
}
