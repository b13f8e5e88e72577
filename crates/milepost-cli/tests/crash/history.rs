//! What a store file holds when nobody has it open: its plan, its tasks and their logs.

use std::collections::BTreeMap;
use std::fs;

use milepost_core::id::PlanId;
use milepost_core::task::{Event, StageStatus, Task, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{EventQuery, PlanRow, Store, StoreError, StoredEvent, TaskQuery, TaskRow, TasksOf};

use crate::support::World;

/// What SQLite keeps a store in. The last is there only while it changes how it keeps the others, as when it makes them:
/// after a loss of power it says what was there before.
pub(crate) const FILES: [&str; 3] = ["milepost.db", "milepost.db-wal", "milepost.db-journal"];

/// A plan as the file has it.
pub(crate) struct History {
    pub(crate) plan: PlanRow,
    pub(crate) tasks: BTreeMap<String, TaskHistory>,
}

pub(crate) struct TaskHistory {
    pub(crate) row: TaskRow,
    pub(crate) task: Task,
    pub(crate) orphaned: bool,
    pub(crate) events: Vec<StoredEvent>,
}

impl History {
    /// Reads a copy, so that the next run finds the file exactly as the last one left it. None: no plan was accepted.
    pub(crate) fn of(world: &World, plan: &str) -> Option<Self> {
        let copy = tempfile::tempdir().unwrap();
        for name in FILES {
            match fs::copy(world.path().join(name), copy.path().join(name)) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
            }
        }
        let store = match SqliteStore::open_to_read(copy.path().join("milepost.db")) {
            Err(StoreError::NotFound { .. }) => return None,
            opened => opened.unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read(&store, &PlanId::parse(plan).unwrap())).unwrap()
    }

    /// What holds at any moment for every task that was accepted: its log is whole, and it has ended or says that it
    /// can be taken up.
    pub(crate) fn check(&self, tasks: usize) {
        assert_eq!(self.tasks.len(), tasks, "accepted tasks are missing");
        self.tasks.values().for_each(TaskHistory::check);
    }
}

impl TaskHistory {
    fn check(&self) {
        let id = &self.row.key.id;
        let sequences: Vec<u64> = self.events.iter().map(|event| event.sequence).collect();
        let dense: Vec<u64> = (1..=self.events.len() as u64).collect();
        assert_eq!(sequences, dense, "the log of {id} has gaps");
        assert_eq!(self.row.version, self.events.len() as u64, "{id} counts other events than it has");
        assert_eq!(self.task.version(), self.row.version, "{id} does not follow from its log");
        assert_eq!(self.task.status(), self.row.status, "{id} does not follow from its log");
        assert!(matches!(self.events[0].record.event(), Event::TaskCreated {}), "{id} was never created");
        let can_go_on = match self.row.status {
            TaskStatus::Pending | TaskStatus::Completed | TaskStatus::Failed => true,
            // Nobody has the file open, so whoever ran it is gone.
            TaskStatus::Running => self.orphaned || self.row.interrupted,
            TaskStatus::Paused
            | TaskStatus::Cancelled
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => false,
        };
        assert!(can_go_on, "{id} is {:?} and waits for nothing", self.row.status);
        self.check_that_nothing_done_starts_again();
    }

    fn check_that_nothing_done_starts_again(&self) {
        let mut done = Vec::new();
        for event in self.events.iter().map(|event| event.record.event()) {
            match event {
                Event::StageCompleted { stage, .. } => done.push(stage),
                Event::StageStarted { stage, .. } => {
                    assert!(!done.contains(&stage), "{stage} of {} was started again", self.row.key.id);
                }
                _ => {}
            }
        }
    }

    /// The stages whose completion is in the file.
    pub(crate) fn done(&self) -> impl Iterator<Item = &str> {
        let done = |status| matches!(status, StageStatus::Completed | StageStatus::Skipped);
        self.task.stages().filter(move |(_, state)| done(state.status)).map(|(stage, _)| stage.name.as_str())
    }

    /// The starts of a stage in the log, each with its attempt and its time. A start that repeats one must have been
    /// cut off: between the two the log says so.
    pub(crate) fn starts(&self, stage: &str) -> Vec<(u32, Timestamp)> {
        let mut starts: Vec<(u32, Timestamp)> = Vec::new();
        let mut cut_off = true;
        for event in &self.events {
            match event.record.event() {
                Event::TaskInterrupted { .. } => cut_off = true,
                Event::StageStarted { stage: started, attempt, .. } if started.as_str() == stage => {
                    let repeated = starts.last().is_some_and(|(before, _)| before == attempt);
                    assert!(cut_off || !repeated, "{stage} of {} started twice for no reason", self.row.key.id);
                    starts.push((*attempt, event.record.at()));
                    cut_off = false;
                }
                _ => {}
            }
        }
        starts
    }
}

async fn read(store: &SqliteStore, plan: &PlanId) -> Result<Option<History>, StoreError> {
    let Some(row) = store.plan(plan).await? else { return Ok(None) };
    let query = TaskQuery { of: TasksOf::Plan(plan.clone()), statuses: Vec::new(), after: None, limit: 10_000 };
    let mut tasks = BTreeMap::new();
    for row in store.tasks(query).await?.items {
        let id = row.key.id.clone();
        let stored = store.task(&id).await?.expect("a listed task is there");
        let events = store.events(EventQuery { task: id.clone(), after: 0, limit: 10_000 }).await?;
        tasks.insert(id.to_string(), TaskHistory { row, task: stored.task, orphaned: stored.orphaned, events });
    }
    Ok(Some(History { plan: row, tasks }))
}
