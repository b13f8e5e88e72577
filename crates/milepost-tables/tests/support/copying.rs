//! A copy as tests want it, and somebody who watches it and can hold it up.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc;

use milepost_tables::{Copied, Copy, Database, IfExists, Limits, OnRowError, Resume, TableError, Verify, Watch};
use tokio_util::sync::CancellationToken;

use super::data::BATCH;
use std::sync::Arc;

/// A table, to a table of the same name, in small batches, and all of it compared at the end.
pub(crate) fn job(from: Arc<dyn Database>, to: Arc<dyn Database>, table: &str) -> Copy {
    let name = milepost_tables::TableName::new(table);
    Copy {
        name: format!("task/{table}"),
        run: 1,
        from,
        to,
        table: name.clone(),
        into: name,
        columns: None,
        types: BTreeMap::new(),
        filter: None,
        batch_rows: BATCH,
        if_exists: IfExists::Fail,
        on_row_error: OnRowError::Stop,
        rejected_file: None,
        resume: Resume::Table,
        verify: Verify::Checksums,
        indexes: true,
        limits: Limits::default(),
    }
}

/// Runs it to its end.
pub(crate) async fn run(job: Copy) -> Result<Copied, TableError> {
    milepost_tables::copy(job, &Silent, &CancellationToken::new()).await
}

#[derive(Debug)]
struct Silent;

impl Watch for Silent {
    fn progress(&self, _done: u64, _total: u64) {}
    fn say(&self, _line: &str) {}
}

/// Stops a copy after the batch that reaches so many rows, until it is let go.
#[derive(Debug)]
pub(crate) struct Gate {
    rows: u64,
    closed: Mutex<Option<(tokio::sync::oneshot::Sender<()>, mpsc::Receiver<()>)>>,
}

/// The test's side of a gate.
#[derive(Debug)]
pub(crate) struct Keeper {
    reached: Option<tokio::sync::oneshot::Receiver<()>>,
    open: mpsc::Sender<()>,
}

pub(crate) fn gate(rows: u64) -> (Gate, Keeper) {
    let (arrived, reached) = tokio::sync::oneshot::channel();
    let (open, opened) = mpsc::channel();
    (Gate { rows, closed: Mutex::new(Some((arrived, opened))) }, Keeper { reached: Some(reached), open })
}

impl Keeper {
    /// Panics if the copy ends before.
    pub(crate) async fn reached(&mut self) {
        self.reached.take().unwrap().await.expect("the copy ended before the gate");
    }

    pub(crate) fn open(&self) {
        self.open.send(()).unwrap();
    }
}

impl Watch for Gate {
    fn progress(&self, done: u64, _total: u64) {
        if done < self.rows {
            return;
        }
        if let Some((arrived, opened)) = self.closed.lock().unwrap().take() {
            arrived.send(()).unwrap();
            // The copy waits inside of this call; other threads of the runtime go on.
            tokio::task::block_in_place(|| opened.recv().unwrap());
        }
    }
    fn say(&self, _line: &str) {}
}

/// Starts a copy that stops after so many rows.
pub(crate) fn start_to(rows: u64, job: Copy) -> (Keeper, tokio::task::JoinHandle<Result<Copied, TableError>>) {
    let (gate, keeper) = gate(rows);
    let running = tokio::spawn(async move {
        let outcome = milepost_tables::copy(job, &gate, &CancellationToken::new()).await;
        // For whoever waits at the gate in vain.
        outcome.inspect_err(|error| eprintln!("the copy ended: {error}"))
    });
    (keeper, running)
}
