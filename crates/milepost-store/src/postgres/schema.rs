//! The tables and functions, and the way from one version of them to the next.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::StoreError;

use super::connect::{Place, unavailable};

/// Each entry leads from the version before it to its own; entries are only ever added.
const MIGRATIONS: &[&[&str]] = &[&[
    include_str!("sql/tables.sql"),
    include_str!("sql/sessions.sql"),
    include_str!("sql/eras.sql"),
    include_str!("sql/books.sql"),
    include_str!("sql/writes.sql"),
    include_str!("sql/submits.sql"),
    include_str!("sql/updates.sql"),
    include_str!("sql/pick.sql"),
]];

/// Brings the schema to the newest version. Several nodes may start at once: one of them migrates, the others wait.
///
/// One transaction, and a lock that goes with it, so that it works through a pooler as well.
pub(super) async fn migrate(client: &mut Client, place: &Place) -> Result<(), StoreError> {
    let newest = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    match version(client, place).await? {
        Some(found) if found == newest => return Ok(()),
        Some(found) if found > newest => return Err(newer(place, found, newest)),
        Some(_) | None => {}
    }
    let failed = unavailable("bring the schema to this version's format");
    let transaction = client.transaction().await.map_err(&failed)?;
    let lock = format!("SELECT pg_advisory_xact_lock({})", place.lock_key());
    transaction.batch_execute(&lock).await.map_err(&failed)?;
    let exists = format!("CREATE SCHEMA IF NOT EXISTS {}", place.quoted());
    if !place.exists(transaction.client()).await? {
        transaction.batch_execute(&exists).await.map_err(&failed)?;
    }
    // Another node may have been faster.
    let found = version(transaction.client(), place).await?.unwrap_or(0);
    if found > newest {
        return Err(newer(place, found, newest));
    }
    if found == 0 {
        let meta =
            "CREATE TABLE @.milepost_format (version integer NOT NULL); INSERT INTO @.milepost_format VALUES (0)";
        transaction.batch_execute(&place.sql(meta)).await.map_err(&failed)?;
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        for part in *migration {
            transaction.batch_execute(&place.sql(part)).await.map_err(&failed)?;
        }
    }
    let done = format!("UPDATE @.milepost_format SET version = {newest}");
    transaction.batch_execute(&place.sql(&done)).await.map_err(&failed)?;
    transaction.commit().await.map_err(&failed)
}

/// None where there is nothing of ours yet.
async fn version(client: &Client, place: &Place) -> Result<Option<i32>, StoreError> {
    let failed = unavailable("read the store's version");
    let table = place.sql("@.milepost_format");
    let sql = "SELECT to_regclass($1)::text";
    let found = client.query_typed(sql, &[(&table, Type::TEXT)]).await.map_err(&failed)?;
    let found: Option<String> = found.first().and_then(|row| row.get(0));
    if found.is_none() {
        return Ok(None);
    }
    let rows = client.query_typed(&place.sql("SELECT version FROM @.milepost_format"), &[]).await.map_err(&failed)?;
    Ok(rows.first().map(|row| row.get(0)))
}

fn newer(place: &Place, found: i32, newest: i32) -> StoreError {
    let schema = place.schema();
    let detail =
        format!("schema {schema} has format {found}, and this milepost knows formats up to {newest}; use a newer one");
    StoreError::Format { detail }
}
