//! The copy, from its first look to its last.
//!
//! What is left behind if the process dies, or the connection, while it
//! - looks at both sides: nothing.
//! - begins: the mark, which says `loading`, and perhaps an empty table beside the target. Whoever begins next takes the
//!   mark over, and drops that table or goes on with it.
//! - reads and writes: as before, with rows in the table beside the target: exactly those that the mark counts, because
//!   both are one transaction. Lines in the file of rejected rows that the mark does not count are cut off by whoever goes
//!   on. Nobody sees a row in the target.
//! - adds indexes: as before; indexes of a table that is dropped or has them already. Whoever begins anew drops the table;
//!   whoever goes on from the mark finds no rows left to read, and comes here again: indexes that are there stay.
//! - finishes: either as before, or the rows are in the target and the mark says `done`. The target never holds a part.
//! - verifies, or tells its caller: the target is whole, and the mark says `done`. The next attempt finds its own table:
//!   `append` is over, and the others do it again.
//!
//! A copy that fails or is cancelled drops the table beside the target by itself, unless it may go on with it.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::changes::changes;
use super::decide::{self, decide};
use super::job::{Copied, Copy, Resume, Verify, Watch};
use super::load;
use super::source::Source;
use super::verify::Sides;
use crate::database::{Begin, Finish, How, Load, MarkState, Shape, UNFINISHED};
use crate::error::TableError;
use crate::table::{Table, TableName};

/// How long dropping what nobody needs may take.
const CLEAN_UP: Duration = Duration::from_secs(5);
/// The longest name that every database takes, in bytes.
const LONGEST_NAME: usize = 63;

/// Copies one table. When it returns, nothing that it started is running any more.
pub async fn copy(copy: Copy, watch: &dyn Watch, cancel: &CancellationToken) -> Result<Copied, TableError> {
    let tasks = TaskTracker::new();
    let copied = go(&copy, watch, cancel, &tasks).await;
    tasks.close();
    tasks.wait().await;
    copied
}

async fn go(
    copy: &Copy,
    watch: &dyn Watch,
    cancel: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<Copied, TableError> {
    let attempt = match until(cancel, Attempt::prepare(copy, watch, tasks)).await? {
        Prepared::Ready(attempt) => attempt,
        Prepared::Already(copied) => return Ok(copied),
    };
    let loaded = until(cancel, attempt.load(watch)).await;
    let copied = match loaded {
        Ok(copied) => copied,
        Err(error) => {
            attempt.clean_up().await;
            return Err(error);
        }
    };
    until(cancel, attempt.verified(copied, watch)).await
}

/// What takes a while, up to the moment that it is no longer wanted.
async fn until<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, TableError>>,
) -> Result<T, TableError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TableError::Cancelled),
        done = work => done,
    }
}

enum Prepared<'a> {
    Ready(Box<Attempt<'a>>),
    Already(Copied),
}

/// One copy, with all that is known before anything is written.
struct Attempt<'a> {
    copy: &'a Copy,
    source: Source,
    load: Load,
    how: How,
    /// The target is a new table.
    is_new: bool,
    go_on: bool,
    fingerprint: String,
    total: u64,
    tasks: &'a TaskTracker,
}

impl<'a> Attempt<'a> {
    async fn prepare(copy: &'a Copy, watch: &dyn Watch, tasks: &'a TaskTracker) -> Result<Prepared<'a>, TableError> {
        let source = Source::look(copy).await?;
        let target = copy.to.table(&copy.into).await?;
        if std::sync::Arc::ptr_eq(&copy.from, &copy.to)
            && target.as_ref().is_some_and(|to| to.name == source.table.name)
        {
            let reason = format!("`{}` cannot be copied into itself; name another table with `into`", copy.table);
            return Err(TableError::Refused(reason));
        }
        let mark = copy.to.mark(&copy.name, &copy.into).await?.filter(|mark| mark.run == copy.run);
        let way = decide(copy.if_exists, &copy.into, target.as_ref(), mark.as_ref(), &source.copied)?;
        let (how, is_new) = match way {
            decide::Way::New => (How::Replace, true),
            decide::Way::Into(how) => (how, false),
            decide::Way::Already => {
                let (rows, rejected) = mark.map(|mark| (mark.rows, mark.rejected)).unwrap_or_default();
                watch.say(&format!("`{}` holds the rows of this copy already; nothing is added twice", copy.into));
                return Ok(Prepared::Already(Copied { rows, rejected, bytes: 0, ranges: None, already: true }));
            }
        };
        let source = if is_new { source.verbatim(copy) } else { source };
        for left_out in &source.table.left_out {
            watch.say(&format!("`{}`: not copied: {left_out}", copy.table));
        }
        let fingerprint = fingerprint(copy, &source, &how, target.as_ref().filter(|_| !is_new));
        let fits = |mark: &crate::database::Mark| mark.state == MarkState::Loading && mark.fingerprint == fingerprint;
        let go_on = copy.resume == Resume::Chunk && mark.as_ref().is_some_and(fits);
        let load = Load {
            copy: copy.name.clone(),
            run: copy.run,
            token: uuid::Uuid::now_v7().to_string(),
            into: copy.into.clone(),
            staging: staging(&copy.name, &copy.into),
            columns: source.columns(),
        };
        let total = source.total(copy).await?;
        let attempt = Self { copy, source, load, how, is_new, go_on, fingerprint, total, tasks };
        Ok(Prepared::Ready(Box::new(attempt)))
    }

    /// From the first row to the moment that all of them are in the target.
    async fn load(&self, watch: &dyn Watch) -> Result<Copied, TableError> {
        let (copy, load) = (self.copy, &self.load);
        let new = self.new_table();
        let shape = if self.is_new { Shape::Of { table: &new, from: copy.from.dialect() } } else { Shape::LikeTarget };
        let begin = Begin { load, shape, go_on: self.go_on, fingerprint: &self.fingerprint };
        let begun = copy.to.begin(begin).await?;
        if begun.after.is_some() {
            watch.say(&format!("`{}` goes on after {} rows", copy.table, begun.rows + begun.rejected));
        }
        let way = load::Way { copy, source: &self.source, load, tasks: self.tasks };
        let mut copied = way.go(begun, self.total, watch).await?;
        self.source_is_as_it_was().await?;
        if self.is_new {
            copy.to.add_indexes(load, &new).await?;
        } else if self.how != How::Truncate {
            copied.ranges = self.sides(&load.staging).await?.compare(watch).await?;
        }
        copy.to.finish(Finish { load, how: self.how.clone(), indexes: &new.indexes }).await?;
        Ok(copied)
    }

    async fn verified(&self, copied: Copied, watch: &dyn Watch) -> Result<Copied, TableError> {
        let ranges = match self.how {
            How::Replace | How::Truncate => self.sides(&self.copy.into).await?.compare(watch).await?,
            How::Append | How::Upsert { .. } => copied.ranges,
        };
        if copied.rejected > 0 {
            let place = self.copy.rejected_file.as_ref().map(|file| format!(": {}", file.display()));
            watch.say(&format!(
                "{} rows of `{}` were rejected{}",
                copied.rejected,
                self.copy.table,
                place.unwrap_or_default()
            ));
        }
        Ok(Copied { ranges, ..copied })
    }

    fn new_table(&self) -> Table {
        let table = self.source.copied.clone();
        if self.copy.indexes { table } else { Table { indexes: Vec::new(), ..table } }
    }

    async fn source_is_as_it_was(&self) -> Result<(), TableError> {
        let now = self.copy.from.table(&self.copy.table).await?;
        let changes = changes(&self.source.table, now.as_ref(), self.copy.columns.as_deref());
        if changes.is_empty() {
            return Ok(());
        }
        let reason = format!("`{}` was changed while it was copied: {}", self.copy.table, changes.join("; "));
        Err(TableError::Refused(reason))
    }

    /// How many rows were rejected is asked of the target as well.
    async fn sides<'b>(&'b self, table: &'b TableName) -> Result<Sides<'b>, TableError> {
        let mark = match self.copy.verify {
            Verify::None => None,
            Verify::Counts | Verify::Checksums => self.copy.to.mark(&self.copy.name, &self.copy.into).await?,
        };
        let rejected = mark.map_or(0, |mark| mark.rejected);
        Ok(Sides { copy: self.copy, source: &self.source, table, rejected, tasks: self.tasks })
    }

    /// Drops what nobody needs any more, if that can be done soon. Not if the rows are in the target: what failed then was
    /// only to hear of it.
    async fn clean_up(&self) {
        if self.copy.resume == Resume::Chunk {
            return;
        }
        let drop_unfinished = async {
            match self.copy.to.mark(&self.copy.name, &self.copy.into).await? {
                Some(mark) if mark.state == MarkState::Done => Ok(()),
                Some(_) | None => self.copy.to.discard(&self.load).await,
            }
        };
        let staging = &self.load.staging;
        match tokio::time::timeout(CLEAN_UP, drop_unfinished).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%staging, %error, "an unfinished table could not be dropped"),
            Err(_) => tracing::warn!(%staging, "an unfinished table could not be dropped in time"),
        }
    }
}

/// Of the run, of the source's shape, and of everything that decides what is in the table beside the target.
fn fingerprint(copy: &Copy, source: &Source, how: &How, target: Option<&Table>) -> String {
    let target = target.map(Table::fingerprint);
    let asked = (copy.run, source.copied.fingerprint(), &source.key, &copy.filter, copy.on_row_error, how, target);
    hex(&format!("{:?} {asked:?}", copy.from.dialect()), 16)
}

/// Of this copy alone, and short enough whatever the target is called.
fn staging(copy: &str, into: &TableName) -> TableName {
    let suffix = format!("{UNFINISHED}{}", hex(&format!("{copy}\n{into}"), 5));
    let mut end = into.name.len().min(LONGEST_NAME - suffix.len());
    while !into.name.is_char_boundary(end) {
        end -= 1;
    }
    into.beside(format!("{}{suffix}", &into.name[..end]))
}

fn hex(text: &str, bytes: usize) -> String {
    Sha256::digest(text).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_table_has_a_name_of_its_own_that_every_database_takes() {
        let long = TableName { schema: Some("s".into()), name: "ö".repeat(40) };
        let name = staging("task/stage", &long);
        assert!(name.name.len() <= LONGEST_NAME && name.name.contains(UNFINISHED), "{name}");
        assert_eq!(name.schema, long.schema);
        assert_ne!(name, staging("other/stage", &long));
        assert_ne!(name, staging("task/stage", &TableName { name: "ö".repeat(41), ..long }));
    }
}
