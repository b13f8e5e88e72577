//! Rows on their way into the table beside the target: a prepared statement, row by row, in short transactions.
//!
//! A statement of SQLite that fails leaves nothing behind, so a bad row is found by itself, and the others stay.

use async_trait::async_trait;
use rusqlite::Connection;

use super::catalogue;
use super::connect::{Failure, Place, is_about_the_row, quoted, refused, swift};
use super::database::blocking;
use super::marks::{self, Step};
use super::turn::Turn;
use super::types::affinity;
use super::written::{Target, Unbound};
use crate::batch::{Batch, Value};
use crate::database::{Load, Rejected, Writer};
use crate::error::TableError;
use crate::shown;

const DOING: &str = "write rows";

/// What a transaction needs, wherever it is worked on; dropped, it is rolled back before the next one's turn.
#[derive(Debug)]
struct Work {
    connection: Connection,
    targets: Vec<Target>,
    insert: String,
    /// Written and not committed.
    rows: u64,
    /// While a transaction is open; after the connection, so that it is dropped after it.
    turn: Option<Turn>,
}

#[derive(Debug)]
pub(super) struct Writing {
    place: Place,
    load: Load,
    skip_bad_rows: bool,
    /// None after a failure: the transaction is lost, and with it this writer.
    work: Option<Work>,
}

impl Writing {
    pub(super) async fn open(place: Place, load: Load, skip_bad_rows: bool) -> Result<Self, TableError> {
        let turn = Turn::wait(&place.path).await;
        let (at, what) = (place.clone(), load.clone());
        let work = blocking(move || {
            let said = at.said(DOING);
            let work = prepare(&at, &what).map_err(said);
            drop(turn);
            work
        })
        .await?;
        Ok(Self { place, load, skip_bad_rows, work: Some(work) })
    }

    /// Hands the work to a thread that may wait, and takes it back if all went well.
    async fn step<T: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut Work, &Load) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, TableError> {
        let lost = || TableError::Away {
            database: self.place.name(),
            doing: DOING,
            reason: "an earlier error ended its transaction".into(),
        };
        let mut work = self.work.take().ok_or_else(lost)?;
        if work.turn.is_none() {
            work.turn = Some(Turn::wait(&self.place.path).await);
        }
        let (place, load) = (self.place.clone(), self.load.clone());
        let (work, result) = blocking(move || {
            let result = step(&mut work, &load).map_err(place.said(DOING))?;
            Ok((work, result))
        })
        .await?;
        self.work = Some(work);
        Ok(result)
    }
}

#[async_trait]
impl Writer for Writing {
    async fn write(&mut self, batch: &Batch) -> Result<Vec<Rejected>, TableError> {
        let (batch, skip) = (batch.clone(), self.skip_bad_rows);
        self.step(move |work, load| {
            work.open_transaction(load)?;
            work.write(&batch, load, skip)
        })
        .await
    }

    async fn commit(&mut self, after: Option<Vec<Value>>, rejected: u64) -> Result<(), TableError> {
        self.step(move |work, load| {
            work.open_transaction(load)?;
            marks::advance(&work.connection, load, &Step { rows: work.rows, rejected, after })?;
            work.connection.execute_batch("COMMIT")?;
            work.rows = 0;
            work.turn = None;
            Ok(())
        })
        .await
    }
}

fn prepare(place: &Place, load: &Load) -> Result<Work, Failure> {
    let connection = place.writer()?;
    swift(&connection)?;
    // Whoever took the copy over may have dropped the table already: that it is gone would be half of the truth.
    marks::must_be_own(&connection, load)?;
    let gone = || refused(format!("the table `{}` that rows are written to is gone", load.staging));
    let table = catalogue::table(&connection, &load.staging)?.ok_or_else(gone)?;
    let target = |(name, kind): &(String, crate::table::Kind)| {
        let column = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let column = column.ok_or_else(|| refused(format!("table `{}` has no column `{name}`", load.into)))?;
        Ok(Target {
            name: name.clone(),
            kind: kind.clone(),
            affinity: affinity(&column.native),
            numbers_rows: column.counts_up,
        })
    };
    let targets = load.columns.iter().map(target).collect::<Result<Vec<_>, Failure>>()?;
    let names = load.columns.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(", ");
    let marks = vec!["?"; load.columns.len()].join(", ");
    let insert = format!("INSERT INTO {} ({names}) VALUES ({marks})", quoted(&table.name.name));
    Ok(Work { connection, targets, insert, rows: 0, turn: None })
}

impl Work {
    fn open_transaction(&self, load: &Load) -> Result<(), Failure> {
        if self.connection.is_autocommit() {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            marks::must_be_own(&self.connection, load)?;
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch, load: &Load, skip_bad_rows: bool) -> Result<Vec<Rejected>, Failure> {
        let mut insert = self.connection.prepare_cached(&self.insert)?;
        let mut rejected = Vec::new();
        for (row, cells) in batch.iter().enumerate() {
            let (column, reason) = match insert_row(&mut insert, &self.targets, batch, cells)? {
                None => {
                    self.rows += 1;
                    continue;
                }
                Some(unfit) => unfit,
            };
            let unfit = shown::rejected(&load.columns, batch, row, column, reason);
            if !skip_bad_rows {
                return Err(Failure::Said(TableError::Row(Box::new(unfit))));
            }
            rejected.push(unfit);
        }
        Ok(rejected)
    }
}

/// None if it was written; else the column that is at fault, as far as that is known, and the reason.
fn insert_row(
    insert: &mut rusqlite::Statement<'_>,
    targets: &[Target],
    batch: &Batch,
    cells: &[crate::batch::Cell],
) -> Result<Option<(Option<usize>, String)>, Failure> {
    for (place, (target, cell)) in targets.iter().zip(cells).enumerate() {
        match target.bind(insert, place + 1, batch, *cell) {
            Ok(()) => {}
            Err(Unbound::Reason(reason)) => return Ok(Some((Some(place), reason))),
            Err(Unbound::Sql(error)) if is_about_the_row(&error) => {
                return Ok(Some((Some(place), format!("column \"{}\": {error}", target.name))));
            }
            Err(Unbound::Sql(error)) => return Err(error.into()),
        }
    }
    match insert.raw_execute() {
        Ok(_) => Ok(None),
        Err(error) if is_about_the_row(&error) => {
            let reason = error.to_string();
            // `NOT NULL constraint failed: table.column`
            let at_fault = targets.iter().position(|target| reason.ends_with(&format!(".{}", target.name)));
            Ok(Some((at_fault, reason)))
        }
        Err(error) => Err(error.into()),
    }
}
