//! Keys to the API, without their secrets.

use milepost_core::api::Scope;
use milepost_core::id::Tenant;
use milepost_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Row, params};

use crate::error::StoreError;
use crate::model::TokenRow;

use super::codec::{time, unavailable};
use super::read::Reader;
use super::writer::{Performed, Writer};

impl Writer {
    pub(super) fn put_token(&self, token: &TokenRow) -> Performed<()> {
        let tenants = serde_json::to_string(&token.tenants).expect("a list of strings is JSON");
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO tokens (id, name, hash, scope, tenants, created_at, expires_at, revoked_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                token.id,
                token.name,
                token.hash.as_slice(),
                scope_word(token.scope),
                tenants,
                token.created_at.as_millis(),
                token.expires_at.map(Timestamp::as_millis),
                token.revoked_at.map(Timestamp::as_millis),
            ])?;
        Ok(Ok(()))
    }
}

impl Reader<'_> {
    /// Oldest first.
    pub(super) fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let read = || {
            if !self.has_table("tokens")? {
                return Ok(Vec::new());
            }
            let mut statement = self.connection.prepare_cached(
                "SELECT id, name, hash, scope, tenants, created_at, expires_at, revoked_at FROM tokens \
                 ORDER BY created_at, id",
            )?;
            let rows = statement.query_map([], token)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(unavailable("list tokens"))
    }
}

fn token(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let unreadable = |column, what: &str| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into());
    let (scope, tenants): (String, String) = (row.get(3)?, row.get(4)?);
    let tenants: Vec<Tenant> = serde_json::from_str(&tenants).map_err(|error| unreadable(4, &error.to_string()))?;
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        hash: row.get(2)?,
        // A token whose scope or tenants cannot be read opens nothing, rather than everything.
        scope: scope_of(&scope).ok_or_else(|| unreadable(3, "there is no such scope"))?,
        tenants,
        created_at: Timestamp::from_millis(row.get(5)?),
        expires_at: time(row, 6)?,
        revoked_at: time(row, 7)?,
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
