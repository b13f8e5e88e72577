//! Keys to the API, without their secrets.

use milepost_core::api::Scope;
use milepost_core::id::Tenant;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::TokenRow;

use super::codec::time;
use super::store::Inner;

impl Inner {
    pub(super) async fn put_token(&self, token: &TokenRow) -> Result<(), StoreError> {
        let tenants = serde_json::to_string(&token.tenants).expect("a list of strings is JSON");
        let (scope, hash) = (scope_word(token.scope), token.hash.as_slice());
        let created = token.created_at.as_millis();
        let (expires, revoked) =
            (token.expires_at.map(Timestamp::as_millis), token.revoked_at.map(Timestamp::as_millis));
        let sql = "INSERT INTO @.tokens VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO UPDATE SET \
                   name = excluded.name, hash = excluded.hash, scope = excluded.scope, tenants = excluded.tenants, \
                   created_at = excluded.created_at, expires_at = excluded.expires_at, revoked_at = excluded.revoked_at";
        let parameters: &super::connect::Parameters<'_> = &[
            (&token.id, Type::TEXT),
            (&token.name, Type::TEXT),
            (&hash, Type::BYTEA),
            (&scope, Type::TEXT),
            (&tenants, Type::TEXT),
            (&created, Type::INT8),
            (&expires, Type::INT8),
            (&revoked, Type::INT8),
        ];
        self.server.write("keep a token", sql, parameters).await?;
        self.stats.count(1, 0);
        Ok(())
    }

    /// Oldest first.
    pub(super) async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let sql = "SELECT * FROM @.tokens ORDER BY created_at, id";
        self.server.read("list tokens", sql, &[]).await?.iter().map(token).collect()
    }
}

fn token(row: &Row) -> Result<TokenRow, StoreError> {
    let id: String = row.get("id");
    // A token whose scope or tenants cannot be read opens nothing, rather than everything.
    let broken = |why: &str| damaged(format!("the token {id}"), why);
    let tenants: Vec<Tenant> = serde_json::from_str(row.get("tenants")).map_err(|error| broken(&error.to_string()))?;
    let scope = scope_of(row.get("scope")).ok_or_else(|| broken("there is no such scope"))?;
    let hash = row.get::<_, &[u8]>("hash").try_into().map_err(|_| broken("its hash has another length"))?;
    Ok(TokenRow {
        name: row.get("name"),
        hash,
        scope,
        tenants,
        created_at: Timestamp::from_millis(row.get("created_at")),
        expires_at: time(row, "expires_at"),
        revoked_at: time(row, "revoked_at"),
        id,
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
