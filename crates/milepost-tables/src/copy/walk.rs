//! Through a table, row by row, adding up what is there.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::reader::Reader;
use super::source::Source;
use super::sum::{Sum, number};
use crate::batch::{Batch, Spoilt, Value};
use crate::database::{Database, Scan};
use crate::error::TableError;
use crate::table::Kind;

#[derive(Debug)]
pub(super) struct Walk {
    reader: Reader,
    kinds: Vec<Kind>,
    key: Vec<usize>,
    batch: Batch,
    /// The next row in the batch.
    at: usize,
    buffer: Vec<u8>,
    /// Rows that could not be read as what they are to be.
    pub(super) spoilt: Vec<Spoilt>,
}

/// A row on the way.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) number: u128,
    pub(super) key: Vec<Value>,
}

impl Walk {
    pub(super) fn start(database: &Arc<dyn Database>, scan: Scan, tasks: &TaskTracker) -> Self {
        let kinds = scan.columns.iter().map(|(_, kind)| kind.clone()).collect();
        let key = scan.key.clone();
        let reader = Reader::start(database, scan, tasks);
        Self { reader, kinds, key, batch: Batch::default(), at: 0, buffer: Vec::new(), spoilt: Vec::new() }
    }

    /// At most so many rows, and the key of the last one; no key if it was the table's last.
    pub(super) async fn some(&mut self, rows: usize) -> Result<(Sum, Option<Vec<Value>>), TableError> {
        let mut sum = Sum::default();
        let mut last = None;
        for _ in 0..rows {
            if !self.arrive().await? {
                return Ok((sum, None));
            }
            sum.add(self.number());
            if sum.rows == rows as u64 {
                last = Some(self.key());
            }
            self.at += 1;
        }
        Ok((sum, last))
    }

    /// All rows up to this key; to the end without one.
    pub(super) async fn up_to(&mut self, until: Option<&[Value]>) -> Result<Sum, TableError> {
        let mut sum = Sum::default();
        while self.arrive().await? {
            if until.is_some_and(|until| compare(&self.key(), until).is_gt()) {
                break;
            }
            sum.add(self.number());
            self.at += 1;
        }
        Ok(sum)
    }

    pub(super) async fn step(&mut self) -> Result<Option<Step>, TableError> {
        if !self.arrive().await? {
            return Ok(None);
        }
        let step = Step { number: self.number(), key: self.key() };
        self.at += 1;
        Ok(Some(step))
    }

    /// False at the end.
    async fn arrive(&mut self) -> Result<bool, TableError> {
        while self.at >= self.batch.rows() {
            let Some(mut batch) = self.reader.next().await? else { return Ok(false) };
            self.spoilt.append(&mut batch.spoilt);
            (self.batch, self.at) = (batch, 0);
        }
        Ok(true)
    }

    fn number(&mut self) -> u128 {
        number(&self.kinds, &self.batch, self.batch.row(self.at), &mut self.buffer)
    }

    fn key(&self) -> Vec<Value> {
        let row = self.batch.row(self.at);
        self.key.iter().map(|column| self.batch.value(row[*column])).collect()
    }
}

/// Integers have one order everywhere; texts, dates and bytes have that of their database.
pub(super) fn key_is_of_integers(source: &Source) -> bool {
    !source.key.is_empty() && source.key.iter().all(|column| source.holds_integers(*column))
}

fn compare(one: &[Value], other: &[Value]) -> Ordering {
    let integer = |value: &Value| match value {
        Value::Int(value) => i128::from(*value),
        Value::Uint(value) => i128::from(*value),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Bytes(_) => i128::MIN,
    };
    one.iter().map(integer).cmp(other.iter().map(integer))
}
