//! Keys to the API, without their secrets.

use milepost_core::api::Scope;
use milepost_core::id::Tenant;
use milepost_core::time::Timestamp;
use mysql_async::{Error, Row};

use crate::error::StoreError;
use crate::model::TokenRow;

use super::begin::Turn;
use super::codec::{Columns, Sql, unavailable};
use super::connect::Server;
use super::sql::{bytes, number_or_null, text};

impl Turn {
    pub(super) fn put_token(&mut self, token: &TokenRow) {
        let tenants = serde_json::to_string(&token.tenants).expect("a list of strings is JSON");
        self.desk.writes.others.push(format!(
            "REPLACE INTO milepost_tokens (id, name, hash, scope, tenants, created_at, expires_at, revoked_at) \
             VALUES ({}, {}, {}, '{}', {}, {}, {}, {})",
            text(&token.id),
            text(&token.name),
            bytes(&token.hash),
            scope_word(token.scope),
            text(&tenants),
            token.created_at.as_millis(),
            number_or_null(token.expires_at.map(Timestamp::as_millis)),
            number_or_null(token.revoked_at.map(Timestamp::as_millis)),
        ));
    }
}

/// Oldest first.
pub(super) async fn tokens(server: &Server) -> Result<Vec<TokenRow>, StoreError> {
    let sql = "SELECT id, name, hash, scope, tenants, created_at, expires_at, revoked_at FROM milepost_tokens \
               ORDER BY created_at, id";
    let rows = server.ask("list tokens", sql).await?.concat();
    rows.into_iter().map(token).collect::<Sql<_>>().map_err(unavailable("list tokens"))
}

fn token(row: Row) -> Sql<TokenRow> {
    let unreadable = |what: String| Error::Other(what.into());
    let mut columns = Columns::from(row);
    let (id, name, hash): (String, String, Vec<u8>) = (columns.next()?, columns.next()?, columns.next()?);
    let (scope, tenants): (String, String) = (columns.next()?, columns.next()?);
    // A token whose scope or tenants cannot be read opens nothing, rather than everything.
    let scope = scope_of(&scope).ok_or_else(|| unreadable(format!("there is no scope `{scope}`")))?;
    let tenants: Vec<Tenant> = serde_json::from_str(&tenants).map_err(|error| unreadable(error.to_string()))?;
    let hash = <[u8; 32]>::try_from(hash).map_err(|_| unreadable("a token's hash has another length".to_owned()))?;
    Ok(TokenRow {
        id,
        name,
        hash,
        scope,
        tenants,
        created_at: columns.time()?,
        expires_at: columns.maybe_time()?,
        revoked_at: columns.maybe_time()?,
    })
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Operate => "operate",
        Scope::Admin => "admin",
    }
}

fn scope_of(word: &str) -> Option<Scope> {
    [Scope::Read, Scope::Operate, Scope::Admin].into_iter().find(|scope| scope_word(*scope) == word)
}
