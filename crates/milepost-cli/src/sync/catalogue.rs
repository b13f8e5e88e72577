//! What a source has, as far as it is wanted: its tables, described, in the order in which they are to be copied.

use std::cmp::Reverse;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use indicatif::{HumanBytes, HumanCount};
use milepost_tables::{Database, Listed, Table, TableName, open};

use super::choice::Choice;
use super::database::{Place, unreadable};
use crate::exit::{Exit, Failure};

/// Tables that are asked about at once.
const AT_ONCE: usize = 4;
/// Names that an error shows.
const SHOWN: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// The largest first, so that the end is not one long table
    Size,
    Name,
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) table: Table,
    pub(crate) rows: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) tables: Vec<Found>,
    /// Patterns that no table is like.
    pub(crate) idle: Vec<String>,
}

/// Fails if nothing is chosen.
pub(crate) async fn read(place: &Place, choice: &Choice, order: Order) -> Result<Catalogue, Failure> {
    let database = open(&place.address).await.map_err(|error| unreadable(&error))?;
    let listed = database.tables().await.map_err(|error| unreadable(&error))?;
    let names: Vec<TableName> = listed.iter().map(|listed| listed.name.clone()).collect();
    let idle = choice.idle(&names).map(str::to_owned).collect();
    let chosen = listed.into_iter().filter(|listed| choice.takes(&listed.name));
    let described = futures::stream::iter(chosen).map(|listed| describe(database.clone(), listed)).buffered(AT_ONCE);
    // One that was dropped meanwhile is no table any more.
    let mut tables: Vec<Found> = described.try_filter_map(async |found| Ok(found)).try_collect().await?;
    if tables.is_empty() {
        return Err(nothing(place, &names));
    }
    match order {
        Order::Size => {
            tables.sort_by_key(|found| (Reverse(found.bytes), Reverse(found.rows), found.table.name.clone()));
        }
        Order::Name => tables.sort_by_key(|found| found.table.name.clone()),
    }
    Ok(Catalogue { tables, idle })
}

async fn describe(database: Arc<dyn Database>, listed: Listed) -> Result<Option<Found>, Failure> {
    let table = database.table(&listed.name).await.map_err(|error| {
        unreadable(&error).help(format!("`--exclude '{}'` leaves it out", listed.name.name.replace('\'', r"'\''")))
    })?;
    Ok(table.map(|table| Found { rows: listed.rows.or(table.rows), bytes: listed.bytes, table }))
}

fn nothing(place: &Place, names: &[TableName]) -> Failure {
    let address = &place.address;
    if names.is_empty() {
        return Failure::new(Exit::NotFound, format!("there are no tables in {address}"))
            .help("look at the name of the database, and whether its user may see them");
    }
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(TableName::to_string).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    Failure::new(Exit::NotFound, format!("no table of {address} is among those chosen"))
        .help(format!("there are: {}", shown.join(", ")))
        .help("`*` stands for any text, `?` for one character; a pattern is for the whole name")
}

impl Found {
    /// What its rows are read in the order of; none: in one pass.
    pub(crate) fn key(&self) -> Option<String> {
        let key = self.table.paging_key();
        let names: Vec<&str> = key.iter().map(|column| self.table.columns[*column].name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    pub(crate) fn size(&self) -> Option<String> {
        size(self.rows, self.bytes)
    }
}

/// `about 1,200 rows, 80 KiB`, as far as it is known.
pub(crate) fn size(rows: Option<u64>, bytes: Option<u64>) -> Option<String> {
    let rows = rows.map(|rows| format!("about {} {}", HumanCount(rows), if rows == 1 { "row" } else { "rows" }));
    let bytes = bytes.map(|bytes| HumanBytes(bytes).to_string());
    let parts: Vec<String> = rows.into_iter().chain(bytes).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
