//! One connection at a time works on a copy's tables.
//!
//! A lock with a name belongs to the connection that took it until that ends, whatever statement it is in. So whoever has
//! it knows that no other statement of this copy is still on its way, not even one that a node has sent before it died:
//! a RENAME that waits for a reader would otherwise put a table in place that another node has begun anew since.

use mysql_async::Conn;
use sha2::{Digest, Sha256};

use crate::error::TableError;
use crate::table::TableName;

use super::connect::Server;
use super::sql;

/// Seconds for a connection that was told to end to do so.
const PATIENCE: u32 = 30;

const DOING: &str = "lock a copy";

/// Ends whoever has it: the copy is this connection's now.
pub(super) async fn take(server: &Server, conn: &mut Conn, copy: &str, into: &TableName) -> Result<(), TableError> {
    let name = name(server, conn, copy, into).await?;
    let holder: Vec<Option<u64>> = server.ask(conn, DOING, copy, &format!("SELECT IS_USED_LOCK('{name}')")).await?;
    let own = u64::from(conn.id());
    if let Some(holder) = holder.into_iter().flatten().next().filter(|holder| *holder != own) {
        server.kill(conn, holder).await?;
    }
    let taken: Vec<Option<u8>> =
        server.ask(conn, DOING, copy, &format!("SELECT GET_LOCK('{name}', {PATIENCE})")).await?;
    match taken.first() {
        Some(Some(1)) => Ok(()),
        _ => Err(TableError::Away {
            database: server.name.clone(),
            doing: DOING,
            reason: format!("another connection works on the copy `{copy}` and does not end"),
        }),
    }
}

/// True if nobody had it.
pub(super) async fn is_free(
    server: &Server,
    conn: &mut Conn,
    copy: &str,
    into: &TableName,
) -> Result<bool, TableError> {
    let name = name(server, conn, copy, into).await?;
    let taken: Vec<Option<u8>> = server.ask(conn, DOING, copy, &format!("SELECT GET_LOCK('{name}', 0)")).await?;
    Ok(taken.first() == Some(&Some(1)))
}

/// Of no more than 64 characters, whatever the copy is called.
async fn name(server: &Server, conn: &mut Conn, copy: &str, into: &TableName) -> Result<String, TableError> {
    let schema: Vec<String> = server.ask(conn, DOING, copy, &format!("SELECT {}", sql::schema(into))).await?;
    let schema = schema.first().map_or("", String::as_str);
    let digest = Sha256::digest(format!("{schema}\n{copy}"));
    let digest: String = digest.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("milepost_{digest}"))
}
