//! The rows appear in the target: all of them, and the mark with them, or nothing.

use rusqlite::{Connection, TransactionBehavior};

use super::catalogue::{find, plain};
use super::connect::{Failure, is_about_the_row, quoted, refused};
use super::indexes::Wanted;
use super::marks;
use crate::database::{How, Load};

pub(super) fn finish(connection: &mut Connection, load: &Load, how: &How, indexes: &[Wanted]) -> Result<(), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    marks::must_be_own(&transaction, load)?;
    let (into, staging) = (plain(&load.into)?, plain(&load.staging)?);
    match how {
        How::Replace => replace(&transaction, load, indexes)?,
        How::Append => add(&transaction, load, "")?,
        How::Truncate => {
            transaction.execute(&format!("DELETE FROM {}", quoted(into)), [])?;
            add(&transaction, load, "")?;
        }
        How::Upsert { key } => add(&transaction, load, &on_conflict(load, key))?,
    }
    transaction.execute(&format!("DROP TABLE IF EXISTS {}", quoted(staging)), [])?;
    marks::done(&transaction, load)?;
    transaction.commit()?;
    Ok(())
}

/// Before the target goes: unless an index of that has the name, which is then built when the table takes its place.
pub(super) fn build_early(connection: &mut Connection, load: &Load, index: &Wanted) -> Result<(), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    marks::must_be_own(&transaction, load)?;
    index.build(&transaction, plain(&load.staging)?, plain(&load.into)?)?;
    transaction.commit()?;
    Ok(())
}

fn replace(connection: &Connection, load: &Load, indexes: &[Wanted]) -> Result<(), Failure> {
    let (into, staging) = (plain(&load.into)?, plain(&load.staging)?);
    if find(connection, &load.staging)?.is_none() {
        return Err(refused(format!("the table `{staging}` that was to become `{into}` is gone")));
    }
    // Refuses a view of that name.
    find(connection, &load.into)?;
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS {}; ALTER TABLE {} RENAME TO {}",
        quoted(into),
        quoted(staging),
        quoted(into)
    ))?;
    indexes.iter().try_for_each(|index| index.build(connection, into, into))
}

fn add(connection: &Connection, load: &Load, on_conflict: &str) -> Result<(), Failure> {
    let (into, staging) = (quoted(plain(&load.into)?), quoted(plain(&load.staging)?));
    let columns = load.columns.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(", ");
    // `WHERE true` tells SQLite that `ON` begins no join.
    let sql = format!("INSERT INTO {into} ({columns}) SELECT {columns} FROM {staging} WHERE true{on_conflict}");
    connection.execute(&sql, []).map_err(|error| {
        if is_about_the_row(&error) {
            refused(format!("the rows cannot be added to `{}`, and it stays as it is: {error}", load.into))
        } else {
            Failure::Sql(error)
        }
    })?;
    Ok(())
}

fn on_conflict(load: &Load, key: &[String]) -> String {
    let names = key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let others = load.columns.iter().filter(|(name, _)| !key.contains(name)).map(|(name, _)| quoted(name));
    let changes = others.map(|name| format!("{name} = excluded.{name}")).collect::<Vec<_>>().join(", ");
    let change = if changes.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {changes}") };
    format!(" ON CONFLICT ({names}) DO {change}")
}
