//! Whether both sides hold the same: everything is read again, and nothing that the copy counted by itself is believed.
//!
//! A new table, and one whose rows were replaced, is compared after it took its place. Rows that are added to others, or
//! merged with them, are compared beside the target, just before: afterwards nobody can tell them from those of others.
//!
//! Tables whose key is made of integers are compared in ranges of it, both sides in step: the order of integers is the
//! same in every database. The others are compared as a whole.

use tokio_util::task::TaskTracker;

use super::differences::Differences;
use super::job::{Copy, Verify, Watch};
use super::source::Source;
use super::walk::{Walk, key_is_of_integers};
use crate::batch::Value;
use crate::error::TableError;
use crate::table::TableName;

/// A range holds so many batches.
const BATCHES: usize = 4;

#[derive(Debug)]
pub(super) struct Sides<'a> {
    pub(super) copy: &'a Copy,
    pub(super) source: &'a Source,
    /// In the target, with the copied rows and no others.
    pub(super) table: &'a TableName,
    /// Rows of the source that were left out.
    pub(super) rejected: u64,
    pub(super) tasks: &'a TaskTracker,
}

impl Sides<'_> {
    /// How many ranges were compared, if any were.
    pub(super) async fn compare(&self, watch: &dyn Watch) -> Result<Option<u64>, TableError> {
        match self.copy.verify {
            Verify::None => Ok(None),
            Verify::Counts => self.counts().await.map(|()| None),
            Verify::Checksums if key_is_of_integers(self.source) => self.ranges().await.map(Some),
            Verify::Checksums => self.whole(watch).await.map(Some),
        }
    }

    async fn counts(&self) -> Result<(), TableError> {
        let source = self.copy.from.count(&self.copy.table, self.copy.filter.as_deref());
        let target = self.copy.to.count(self.table, None);
        let (source, target) = futures::try_join!(source, target)?;
        if target.checked_add(self.rejected) == Some(source) {
            return Ok(());
        }
        let left_out = if self.rejected == 0 { String::new() } else { format!(", {} rejected", self.rejected) };
        Err(self.differ(&format!("the source has {source} rows{left_out}, the target has {target}")))
    }

    async fn ranges(&self) -> Result<u64, TableError> {
        let (mut source, mut target) = (self.walk_source(None, None), self.walk_target(None, None));
        let (mut ranges, mut missing, mut after) = (0, 0, None);
        loop {
            let (sum, until) = source.some(self.copy.batch_rows * BATCHES).await?;
            let other = target.up_to(until.as_deref()).await?;
            ranges += 1;
            if sum != other {
                missing += self.look_into(after, until.clone()).await?;
            }
            match until {
                Some(until) => after = Some(until),
                None => break,
            }
        }
        self.nothing_spoilt(&target)?;
        let unread = source.spoilt.len() as u64;
        if missing + unread == self.rejected {
            return Ok(ranges);
        }
        let reason =
            format!("{} rows are missing in the target, and {} were rejected", missing + unread, self.rejected);
        Err(self.differ(&reason))
    }

    /// How many rows of a range that differs are missing, if that is all, and some were rejected.
    async fn look_into(&self, after: Option<Vec<Value>>, until: Option<Vec<Value>>) -> Result<u64, TableError> {
        let mut source = self.walk_source(after.clone(), until.clone());
        let mut target = self.walk_target(after.clone(), until.clone());
        let differences = Differences::between(&mut source, &mut target).await?;
        self.nothing_spoilt(&target)?;
        if differences.only_missing() && self.rejected > 0 {
            return Ok(differences.missing.len() as u64);
        }
        let keys = |key: &[Value]| self.source.key_in_words(key);
        let place = match (&after, &until) {
            (None, None) => String::new(),
            (None, Some(until)) => format!("up to {}, ", keys(until)),
            (Some(after), None) => format!("after {}, ", keys(after)),
            (Some(after), Some(until)) => format!("after {} and up to {}, ", keys(after), keys(until)),
        };
        if differences.are_none() {
            // It was changed on one side, and then on the other, while we looked.
            return Ok(0);
        }
        Err(self.differ(&format!("{place}{}", differences.in_words(self.source))))
    }

    async fn whole(&self, watch: &dyn Watch) -> Result<u64, TableError> {
        let (mut source, mut target) = (self.walk_source(None, None), self.walk_target(None, None));
        let (sum, other) = futures::try_join!(source.up_to(None), target.up_to(None))?;
        self.nothing_spoilt(&target)?;
        if sum == other {
            return Ok(1);
        }
        let refused = self.rejected - source.spoilt.len() as u64;
        if refused > 0 && sum.rows == other.rows + refused {
            watch.say(&format!(
                "{refused} rows of `{}` were rejected by the target, and without a key of integers nobody can tell which \
                 are missing now: only the number of rows was compared",
                self.copy.table
            ));
            return Ok(1);
        }
        let reason = if sum.rows == other.rows {
            format!("both have {} rows, and not all of them are the same", sum.rows)
        } else {
            format!("the source has {} rows that can be read, the target has {}", sum.rows, other.rows)
        };
        Err(self.differ(&reason))
    }

    fn walk_source(&self, after: Option<Vec<Value>>, until: Option<Vec<Value>>) -> Walk {
        let filter = self.copy.filter.clone();
        let scan = self.source.scan(&self.copy.table, filter, self.copy.batch_rows, after, until);
        Walk::start(&self.copy.from, scan, self.tasks)
    }

    fn walk_target(&self, after: Option<Vec<Value>>, until: Option<Vec<Value>>) -> Walk {
        let scan = self.source.scan(self.table, None, self.copy.batch_rows, after, until);
        Walk::start(&self.copy.to, scan, self.tasks)
    }

    fn nothing_spoilt(&self, target: &Walk) -> Result<(), TableError> {
        match target.spoilt.first() {
            None => Ok(()),
            Some(row) => Err(self.differ(&format!("in the target {}", row.reason))),
        }
    }

    fn differ(&self, reason: &str) -> TableError {
        TableError::Refused(format!(
            "`{}` and `{}` are not the same after the copy: {reason}; the target stays as it is (if the source is \
             written to while it is copied, say `verify: none`)",
            self.copy.table, self.table
        ))
    }
}
