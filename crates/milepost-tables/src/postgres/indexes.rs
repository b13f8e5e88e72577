//! Keys and indexes: built after the rows, under names of their own, and renamed when the table is in its place.

use crate::database::{Finish, Load};
use crate::error::TableError;
use crate::table::Table;

use super::connect::{Session, words};
use super::marks;
use super::names::{LONGEST_NAME, Place, cut, joined, quoted, quoted_list, temporary};

const DOING: &str = "build indexes";
const PRIMARY: &str = "key";

pub(super) async fn add(session: &Session, load: &Load, table: &Table) -> Result<(), TableError> {
    let staging = session.place(&load.staging);
    session.run(DOING, "BEGIN").await?;
    marks::hold(session, load).await?;
    let columns = |positions: &[usize]| quoted_list(positions.iter().map(|at| table.columns[*at].name.as_str()));
    if !table.primary.is_empty() {
        let name = temporary(&staging.name, PRIMARY);
        let constraint = format!("ADD CONSTRAINT {} PRIMARY KEY ({})", quoted(&name), columns(&table.primary));
        let sql = format!("ALTER TABLE {} {constraint}", staging.sql());
        build(session, &staging, &name, "the primary key", &sql).await?;
    }
    for (position, index) in table.indexes.iter().enumerate() {
        let name = temporary(&staging.name, &position.to_string());
        let unique = if index.unique { "UNIQUE " } else { "" };
        let sql = format!("CREATE {unique}INDEX {} ON {} ({})", quoted(&name), staging.sql(), columns(&index.columns));
        build(session, &staging, &name, &format!("index {}", index.name), &sql).await?;
    }
    session.run(DOING, "COMMIT").await
}

/// Unless an earlier attempt has built it.
async fn build(session: &Session, staging: &Place, name: &str, what: &str, sql: &str) -> Result<(), TableError> {
    if marks::is_there(session, &staging.beside(name)).await? {
        return Ok(());
    }
    session.client.batch_execute(sql).await.map_err(|error| match session.failed(DOING, &error) {
        TableError::Refused(_) => {
            TableError::Refused(format!("{what} cannot be built in {}: {}", session.shown(), words(&error)))
        }
        other => other,
    })
}

/// Gives them the names that they keep. The table is in its place, and the one that was there is gone, with its names.
pub(super) async fn rename(session: &Session, finish: &Finish<'_>) -> Result<(), TableError> {
    let (into, staging) = (session.place(&finish.load.into), session.place(&finish.load.staging));
    let primary = (temporary(&staging.name, PRIMARY), joined(&into.name, "pkey"));
    let others = finish.indexes.iter().enumerate();
    let others = others.map(|(position, index)| (temporary(&staging.name, &position.to_string()), index.name.clone()));
    for (name, wanted) in std::iter::once(primary).chain(others) {
        if marks::is_there(session, &into.beside(&name)).await? {
            let free = free_name(session, &into, &wanted).await?;
            let sql = format!("ALTER INDEX {} RENAME TO {}", into.beside(name).sql(), quoted(&free));
            session.run("rename indexes", &sql).await?;
        }
    }
    Ok(())
}

/// The name that is wanted, or one like it: names are the schema's, and another table may have this one.
pub(super) async fn free_name(session: &Session, into: &Place, wanted: &str) -> Result<String, TableError> {
    let wanted = cut(wanted, LONGEST_NAME).to_owned();
    let mut name = wanted.clone();
    let mut tries = 1;
    while marks::is_there(session, &into.beside(&name)).await? {
        name = match tries {
            1 => joined(&into.name, &wanted),
            _ => joined(&into.name, &format!("{}_{tries}", cut(&wanted, 20))),
        };
        tries += 1;
    }
    Ok(name)
}
