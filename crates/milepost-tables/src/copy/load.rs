//! The rows' way from the source to the table beside the target, batch by batch.

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::job::{Copied, Copy, OnRowError, Watch};
use super::limits::Pace;
use super::reader::Reader;
use super::rejected::RejectedFile;
use super::source::Source;
use crate::batch::{Batch, Spoilt, Value};
use crate::database::{Begun, Load, Rejected, Scan, Writer};
use crate::error::TableError;

#[derive(Debug)]
pub(super) struct Way<'a> {
    pub(super) copy: &'a Copy,
    pub(super) source: &'a Source,
    pub(super) load: &'a Load,
    pub(super) tasks: &'a TaskTracker,
}

/// How far it is.
struct Tally<'a> {
    copied: Copied,
    total: u64,
    watch: &'a dyn Watch,
}

impl Way<'_> {
    /// Everything after where an earlier attempt was.
    pub(super) async fn go(&self, begun: Begun, total: u64, watch: &dyn Watch) -> Result<Copied, TableError> {
        let Begun { rows, rejected, after } = begun.clone();
        let copied = Copied { rows, rejected, bytes: 0, ranges: None, already: false };
        let mut tally = Tally { copied, total, watch };
        tally.tell();
        let skips = self.copy.on_row_error == OnRowError::Skip;
        let file = if skips { self.copy.rejected_file.clone() } else { None };
        let mut file = RejectedFile::open(file, self.copy.table.to_string(), rejected).await?;
        let mut reader = Reader::start(&self.copy.from, self.scan(after), self.tasks);
        let mut writer = self.copy.to.writer(self.load, &begun, skips).await?;
        let mut pace = Pace::new(self.copy.limits, Instant::now());
        while let Some(batch) = reader.next().await? {
            pace.wait(rows_in(&batch), batch.size() as u64).await;
            let rejected = self.write(&batch, writer.as_mut(), &mut file).await?;
            tally.committed(&batch, rejected);
            // Whoever was told may have had enough of it: that is seen before another batch is begun.
            tokio::task::yield_now().await;
        }
        // It is known now how many there are, whatever was estimated.
        tally.total = tally.done();
        tally.tell();
        Ok(tally.copied)
    }

    /// How many rows of it were rejected.
    async fn write(&self, batch: &Batch, writer: &mut dyn Writer, file: &mut RejectedFile) -> Result<u64, TableError> {
        if let (Some(spoilt), OnRowError::Stop) = (batch.spoilt.first(), self.copy.on_row_error) {
            return Err(self.named(unread(spoilt)));
        }
        let rejected =
            if batch.rows() == 0 { Vec::new() } else { writer.write(batch).await.map_err(|e| self.named(e))? };
        file.add(&batch.spoilt, &rejected).await?;
        let count = (batch.spoilt.len() + rejected.len()) as u64;
        writer.commit(self.last_key(batch), count).await?;
        Ok(count)
    }

    fn scan(&self, after: Option<Vec<Value>>) -> Scan {
        // Slower than one batch a second means smaller batches, so that it is steady and people see it move.
        let least = |given: usize, limit: Option<u64>| {
            limit.map_or(given, |limit| given.min(usize::try_from(limit.max(1)).unwrap_or(usize::MAX)))
        };
        let batch_rows = least(self.copy.batch_rows, self.copy.limits.rows_per_second);
        let scan = self.source.scan(&self.copy.table, self.copy.filter.clone(), batch_rows, after, None);
        Scan { batch_bytes: least(scan.batch_bytes, self.copy.limits.bytes_per_second), ..scan }
    }

    /// Where another attempt goes on: after a spoilt row as well, which must not be counted twice.
    fn last_key(&self, batch: &Batch) -> Option<Vec<Value>> {
        if self.source.key.is_empty() {
            return None;
        }
        batch.last.clone().or_else(|| {
            let row = batch.row(batch.rows().checked_sub(1)?);
            Some(self.source.key.iter().map(|column| batch.value(row[*column])).collect())
        })
    }

    fn named(&self, error: TableError) -> TableError {
        match error {
            TableError::Row(mut rejected) => {
                rejected.reason = format!("a row of `{}` cannot be copied: {}", self.copy.table, rejected.reason);
                TableError::Row(rejected)
            }
            other => other,
        }
    }
}

fn unread(spoilt: &Spoilt) -> TableError {
    let Spoilt { row, reason } = spoilt.clone();
    TableError::Row(Box::new(Rejected { row: 0, column: None, reason, values: row }))
}

fn rows_in(batch: &Batch) -> u64 {
    (batch.rows() + batch.spoilt.len()) as u64
}

impl Tally<'_> {
    fn committed(&mut self, batch: &Batch, rejected: u64) {
        let rows = rows_in(batch);
        self.copied.rows += rows - rejected;
        self.copied.rejected += rejected;
        self.copied.bytes += batch.size() as u64;
        tracing::debug!(target: "milepost_tables", rows, done = self.done(), "a batch was committed");
        self.tell();
    }

    fn done(&self) -> u64 {
        self.copied.rows + self.copied.rejected
    }

    fn tell(&mut self) {
        self.total = self.total.max(self.done());
        self.watch.progress(self.done(), self.total);
    }
}
