//! Indexes beside the primary key: which there are, and how they get their names.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::connect::{Failure, quoted, refused};
use crate::table::{Column, Index};

/// Those that are a list of columns; and the others, in words.
pub(super) fn of(
    connection: &Connection,
    table: &str,
    columns: &[Column],
) -> Result<(Vec<Index>, Vec<String>), Failure> {
    let mut query = connection.prepare(
        "SELECT name, \"unique\", origin, partial FROM pragma_index_list(?1) WHERE origin <> 'pk' ORDER BY seq DESC",
    )?;
    let mut rows = query.query([table])?;
    let (mut indexes, mut left_out) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let (unique, origin, partial): (bool, String, bool) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let places = places(connection, &name, columns)?;
        match places {
            _ if partial => left_out.push(format!("partial index {name}")),
            None => left_out.push(format!("index {name} of an expression")),
            // That of a constraint has a name that nobody else may use.
            Some(places) if origin == "u" => {
                let names = places.iter().map(|place| columns[*place].name.as_str()).collect::<Vec<_>>().join("_");
                indexes.push(Index { name: format!("{table}_{names}_key"), unique, columns: places });
            }
            Some(places) => indexes.push(Index { name, unique, columns: places }),
        }
    }
    Ok((indexes, left_out))
}

/// None if it is more than a list of columns.
fn places(connection: &Connection, index: &str, columns: &[Column]) -> Result<Option<Vec<usize>>, Failure> {
    let mut query = connection.prepare("SELECT name FROM pragma_index_info(?1) ORDER BY seqno")?;
    let names = query.query_map([index], |row| row.get::<_, Option<String>>(0))?.collect::<Result<Vec<_>, _>>()?;
    let place = |name: Option<String>| columns.iter().position(|column| Some(&column.name) == name.as_ref());
    Ok(names.into_iter().map(place).collect())
}

/// One to be built on the table beside the target.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) name: String,
    unique: bool,
    columns: Vec<String>,
}

impl Wanted {
    pub(super) fn new(index: &Index, columns: &[(String, crate::table::Kind)]) -> Self {
        let names = index.columns.iter().map(|column| columns[*column].0.clone()).collect();
        Self { name: index.name.clone(), unique: index.unique, columns: names }
    }

    /// Builds it, unless the table has it, or its name is that of a table that goes.
    pub(super) fn build(&self, connection: &Connection, table: &str, into: &str) -> Result<(), Failure> {
        let Some(name) = self.free_name(connection, table, into)? else { return Ok(()) };
        let unique = if self.unique { "UNIQUE " } else { "" };
        let columns = self.columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let sql = format!("CREATE {unique}INDEX {} ON {} ({columns})", quoted(&name), quoted(table));
        connection.execute(&sql, []).map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::ConstraintViolation) => refused(format!(
                "the unique index `{}` of `{into}` cannot be built: {error}; make the values of {columns} unique, or copy \
                 without indexes",
                self.name
            )),
            _ => Failure::Sql(error),
        })?;
        Ok(())
    }

    /// None: the table has the index, or the name gets free only when `into` makes room for the table.
    fn free_name(&self, connection: &Connection, table: &str, into: &str) -> Result<Option<String>, Failure> {
        for name in self.names(into) {
            match owner(connection, &name)? {
                None if self.is_on(connection, table, into)? => return Ok(None),
                None => return Ok(Some(name)),
                Some(owner) if owner.eq_ignore_ascii_case(table) && self.is(connection, &name)? => return Ok(None),
                Some(owner) if owner.eq_ignore_ascii_case(into) && !into.eq_ignore_ascii_case(table) => {
                    return Ok(None);
                }
                Some(_) => {}
            }
        }
        unreachable!("there are more numbers than indexes")
    }

    /// A name is a whole database's in SQLite, and only a table's elsewhere: one that is taken gets the table's before it.
    /// Names that begin with `sqlite_` are SQLite's own.
    fn names(&self, into: &str) -> impl Iterator<Item = String> {
        let with_table = format!("{into}_{}", self.name);
        let first = Some(self.name.clone()).filter(|name| !name.to_ascii_lowercase().starts_with("sqlite_"));
        let numbered = with_table.clone();
        first.into_iter().chain([with_table]).chain((2..).map(move |number| format!("{numbered}_{number}")))
    }

    /// True if the table has it under one of its names, which need not be the one that it would get now.
    fn is_on(&self, connection: &Connection, table: &str, into: &str) -> Result<bool, Failure> {
        let mut query = connection.prepare("SELECT name FROM pragma_index_list(?1)")?;
        let there = query.query_map([table], |row| row.get(0))?.collect::<Result<BTreeSet<String>, _>>()?;
        for name in self.names(into).take(there.len() + 2).filter(|name| there.contains(name)) {
            if self.is(connection, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is(&self, connection: &Connection, name: &str) -> Result<bool, Failure> {
        let mut query = connection.prepare("SELECT name FROM pragma_index_info(?1) ORDER BY seqno")?;
        let names = query.query_map([name], |row| row.get::<_, Option<String>>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(names.iter().map(Option::as_deref).eq(self.columns.iter().map(|name| Some(name.as_str()))))
    }
}

/// Whose an index or a table of this name is; tables and indexes share their names.
fn owner(connection: &Connection, name: &str) -> Result<Option<String>, Failure> {
    let mut query = connection.prepare("SELECT tbl_name FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE")?;
    let owners = query.query_map([name], |row| row.get(0))?.collect::<Result<BTreeSet<String>, _>>()?;
    Ok(owners.into_iter().next())
}
