//! Between our types and what the tables hold.

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;
use mysql_async::prelude::FromValue;
use mysql_async::{Error, Row};

use crate::error::StoreError;

/// What the server or the way to it said.
pub(super) type Sql<T> = Result<T, Error>;

pub(super) const BACKEND: &str = "mysql";

/// The backend said no: what it was asked for, and its own words.
pub(super) fn unavailable(operation: &'static str) -> impl Fn(Error) -> StoreError {
    move |error| StoreError::Unavailable { backend: BACKEND, operation, source: error.into() }
}

/// Leases of one session lie between its number and the next, so that a look at one tells whose it is.
pub(super) const LEASES_PER_SESSION: u64 = 1 << 40;

pub(super) fn session_of(lease: u64) -> u64 {
    lease / LEASES_PER_SESSION
}

/// Reads a row from left to right.
#[derive(Debug)]
pub(super) struct Columns {
    row: Row,
    at: usize,
}

impl From<Row> for Columns {
    fn from(row: Row) -> Self {
        Self { row, at: 0 }
    }
}

impl Columns {
    pub(super) fn next<T: FromValue>(&mut self) -> Sql<T> {
        let at = self.at;
        self.at += 1;
        match self.row.take_opt(at) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(Error::Other(error.into())),
            None => Err(Error::Other(format!("the answer has no column {at}").into())),
        }
    }

    pub(super) fn natural(&mut self) -> Sql<u64> {
        Ok(self.next::<i64>()?.unsigned_abs())
    }

    pub(super) fn maybe<T: FromValue>(&mut self) -> Sql<Option<T>> {
        self.next()
    }

    pub(super) fn flag(&mut self) -> Sql<bool> {
        Ok(self.next::<i64>()? != 0)
    }

    pub(super) fn time(&mut self) -> Sql<Timestamp> {
        Ok(Timestamp::from_millis(self.next()?))
    }

    pub(super) fn maybe_time(&mut self) -> Sql<Option<Timestamp>> {
        Ok(self.maybe::<i64>()?.map(Timestamp::from_millis))
    }

    /// Names were checked when they came in; one that fails now was changed by another hand.
    pub(super) fn task_id(&mut self) -> Sql<TaskId> {
        TaskId::parse(self.next::<String>()?).map_err(|error| Error::Other(error.into()))
    }

    pub(super) fn plan_id(&mut self) -> Sql<PlanId> {
        PlanId::parse(self.next::<String>()?).map_err(|error| Error::Other(error.into()))
    }

    pub(super) fn maybe_tenant(&mut self) -> Sql<Option<Tenant>> {
        let text = self.maybe::<String>()?;
        text.map(Tenant::parse).transpose().map_err(|error| Error::Other(error.into()))
    }

    pub(super) fn task_status(&mut self) -> Sql<TaskStatus> {
        let word: String = self.next()?;
        let known = TaskStatus::ALL.iter().find(|status| task_word(**status) == word);
        known.copied().ok_or_else(|| Error::Other(format!("there is no status `{word}` of a task").into()))
    }

    pub(super) fn plan_status(&mut self) -> Sql<PlanStatus> {
        let word: String = self.next()?;
        let known = PlanStatus::ALL.iter().find(|status| plan_word(**status) == word);
        known.copied().ok_or_else(|| Error::Other(format!("there is no status `{word}` of a plan").into()))
    }

    pub(super) fn progress(&mut self) -> Sql<Option<(u64, u64)>> {
        let (done, total) = (self.maybe::<u64>()?, self.maybe::<u64>()?);
        Ok(done.map(|done| (done, total.unwrap_or(0))))
    }
}

/// Words as DataTrace's tables have them: in small letters.
pub(super) fn task_word(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending => "pending",
        TaskStatus::Running => "running",
        TaskStatus::Paused => "paused",
        TaskStatus::Completed => "completed",
        TaskStatus::Failed => "failed",
        TaskStatus::Cancelled => "cancelled",
        TaskStatus::RollingBack => "rolling_back",
        TaskStatus::RolledBack => "rolled_back",
        TaskStatus::RollbackFailed => "rollback_failed",
    }
}

pub(super) fn plan_word(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::Created => "created",
        PlanStatus::Ready => "ready",
        PlanStatus::Running => "running",
        PlanStatus::Paused => "paused",
        PlanStatus::Completed => "completed",
        PlanStatus::Failed => "failed",
        PlanStatus::Cancelled => "cancelled",
    }
}
