//! Which database an address means.

use std::sync::Arc;

use crate::address::Address;
use crate::database::Database;
use crate::error::TableError;
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;

/// Connects when it is first asked something. A SQLite file that is a source has to be there; a target's is created.
pub async fn open(address: &Address) -> Result<Arc<dyn Database>, TableError> {
    Ok(match address {
        Address::Sqlite(path) => Arc::new(Sqlite::open(path)?),
        Address::Postgres(url) => Arc::new(Postgres::open(url)?),
        Address::Mysql(url) => Arc::new(Mysql::open(url)?),
    })
}
