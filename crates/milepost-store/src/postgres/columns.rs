//! Rows on their way to the server: a column of each, because that is how a function takes many at once.

use milepost_core::plan::{PlanCommand, TaskCounts, next_plan_status};
use milepost_core::task::{Event, PlanStatus, Record, TaskStatus};
use tokio_postgres::types::{ToSql, Type};

use crate::codec::Body;
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::connect::Parameters;

/// Of snapshots in one statement.
const MOST_BYTES: usize = 256 << 20;

/// What the log's own columns say of a commit, beside its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventColumns {
    pub(super) attempt: i32,
    pub(super) backoff_ms: Option<i64>,
    pub(super) failure: Option<String>,
}

impl EventColumns {
    /// The failure in a commit is what people search for; else the attempt that its last stage event names.
    pub(super) fn of(events: &[Record]) -> Self {
        let mut columns = Self { attempt: 1, backoff_ms: None, failure: None };
        for record in events {
            match record.event() {
                Event::RetryScheduled { attempt, delay, cause, .. } => {
                    return Self {
                        attempt: number(*attempt),
                        backoff_ms: i64::try_from(delay.get()).ok(),
                        failure: Some(cause.reason.clone()),
                    };
                }
                Event::StageFailed { attempt, cause, .. } => {
                    columns.attempt = number(*attempt);
                    columns.failure = Some(cause.reason.clone());
                }
                Event::StageStarted { attempt, .. } | Event::StageCompleted { attempt, .. }
                    if columns.failure.is_none() =>
                {
                    columns.attempt = number(*attempt);
                }
                _ => {}
            }
        }
        columns
    }
}

/// The images of tasks, and the rows of the log that go with them.
#[derive(Debug, Default)]
pub(super) struct TaskColumns {
    statuses: Vec<i16>,
    versions: Vec<i64>,
    dones: Vec<i32>,
    totals: Vec<i32>,
    stages: Vec<Option<String>>,
    attempts: Vec<i32>,
    dues: Vec<Option<i64>>,
    flags: Vec<i16>,
    reasons: Vec<Option<String>>,
    starts: Vec<Option<i64>>,
    updates: Vec<i64>,
    ends: Vec<Option<i64>>,
    bodies: Vec<Option<String>>,
    crcs: Vec<i64>,
    event_attempts: Vec<i32>,
    backoffs: Vec<Option<i64>>,
    failures: Vec<Option<String>>,
}

impl TaskColumns {
    pub(super) fn push(&mut self, row: RowImage, body: Option<Body>, event: EventColumns) {
        self.statuses.push(task_code(row.status));
        self.versions.push(row.version as i64);
        self.dones.push(row.done as i32);
        self.totals.push(row.total as i32);
        self.stages.push(row.stage);
        self.attempts.push(number(row.attempt));
        self.dues.push(row.due_at);
        self.flags.push(row.flags as i16);
        self.reasons.push(row.reason.map(text));
        self.starts.push(row.started_at);
        self.updates.push(row.updated_at);
        self.ends.push(row.ended_at);
        self.crcs.push(body.as_ref().map_or(0, |body| i64::from(body.crc)));
        self.bodies.push(body.map(|body| body.text));
        self.event_attempts.push(event.attempt);
        self.backoffs.push(event.backoff_ms);
        self.failures.push(event.failure.map(text));
    }

    pub(super) fn image(&self) -> [(&(dyn ToSql + Sync), Type); 12] {
        [
            (&self.statuses, Type::INT2_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.dones, Type::INT4_ARRAY),
            (&self.totals, Type::INT4_ARRAY),
            (&self.stages, Type::TEXT_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.dues, Type::INT8_ARRAY),
            (&self.flags, Type::INT2_ARRAY),
            (&self.reasons, Type::TEXT_ARRAY),
            (&self.starts, Type::INT8_ARRAY),
            (&self.updates, Type::INT8_ARRAY),
            (&self.ends, Type::INT8_ARRAY),
        ]
    }

    pub(super) fn events(&self) -> [(&(dyn ToSql + Sync), Type); 5] {
        [
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.crcs, Type::INT8_ARRAY),
            (&self.event_attempts, Type::INT4_ARRAY),
            (&self.backoffs, Type::INT8_ARRAY),
            (&self.failures, Type::TEXT_ARRAY),
        ]
    }
}

/// Images of tasks with long logs, each with its place among those that are written.
#[derive(Debug, Default)]
pub(super) struct SnapshotColumns {
    ords: Vec<i64>,
    crcs: Vec<i64>,
    bodies: Vec<String>,
    bytes: usize,
}

impl SnapshotColumns {
    /// What would be too much for one statement, which takes a gigabyte, is left out.
    pub(super) fn push(&mut self, ord: i64, snapshot: Snapshot) {
        self.bytes += snapshot.text.len();
        if self.bytes > MOST_BYTES {
            return;
        }
        self.ords.push(ord);
        self.crcs.push(i64::from(snapshot.crc));
        self.bodies.push(snapshot.text);
    }

    pub(super) fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 3] {
        [(&self.ords, Type::INT8_ARRAY), (&self.crcs, Type::INT8_ARRAY), (&self.bodies, Type::TEXT_ARRAY)]
    }
}

/// Which status of a plan follows from each, as the functions are told it: what the core says, and -1 where it refuses.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) pause: Vec<i16>,
    all_completed: Vec<i16>,
    some_not: Vec<i16>,
}

impl Rules {
    pub(super) fn new() -> Self {
        let ended = |status| {
            let mut counts = TaskCounts::default();
            counts.add(status, 1);
            follows(PlanCommand::Settle, &counts)
        };
        Self {
            pause: Self::of(PlanCommand::Pause),
            all_completed: ended(TaskStatus::Completed),
            some_not: ended(TaskStatus::Failed),
        }
    }

    /// What a command makes of each status; none but settling looks at the tasks.
    pub(super) fn of(command: PlanCommand) -> Vec<i16> {
        follows(command, &TaskCounts::default())
    }

    pub(super) fn settling(&self) -> [(&(dyn ToSql + Sync), Type); 2] {
        [(&self.all_completed, Type::INT2_ARRAY), (&self.some_not, Type::INT2_ARRAY)]
    }
}

fn follows(command: PlanCommand, counts: &TaskCounts) -> Vec<i16> {
    let next = |status: &PlanStatus| next_plan_status("", *status, counts, command).map_or(-1, plan_code);
    PlanStatus::ALL.iter().map(next).collect()
}

pub(super) fn plan_code(status: PlanStatus) -> i16 {
    status.code() as i16
}

pub(super) fn task_code(status: TaskStatus) -> i16 {
    status.code() as i16
}

pub(super) fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// The server's text has no room for a zero character; what people only read does without it.
pub(super) fn text(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// `SELECT * FROM @.function($1, $2, ...)`
pub(super) fn call(function: &str, parameters: &Parameters<'_>) -> String {
    let places: Vec<String> = (1..=parameters.len()).map(|place| format!("${place}")).collect();
    format!("SELECT * FROM @.{function}({})", places.join(", "))
}
