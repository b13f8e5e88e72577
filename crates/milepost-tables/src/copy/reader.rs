//! Reads ahead, in a task of its own.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::batch::Batch;
use crate::database::{Database, Scan};
use crate::error::TableError;

/// Batches that wait. With one that is being read and one that is being written, four are in memory at most.
const AHEAD: usize = 2;
/// How large a batch may get.
pub(super) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Ends its task when it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    batches: mpsc::Receiver<Result<Batch, TableError>>,
    task: Option<AbortOnDropHandle<()>>,
}

impl Reader {
    /// Whoever waits for `tasks` waits for the reader's end as well.
    pub(super) fn start(database: &Arc<dyn Database>, scan: Scan, tasks: &TaskTracker) -> Self {
        let (sender, batches) = mpsc::channel(AHEAD);
        let database = database.clone();
        let task = tasks.spawn(async move {
            if let Err(error) = read(database.as_ref(), scan, &sender).await {
                // Nobody listens any more: then nobody minds.
                let _ = sender.send(Err(error)).await;
            }
        });
        Self { batches, task: Some(AbortOnDropHandle::new(task)) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Batch>, TableError> {
        match self.batches.recv().await {
            Some(batch) => batch.map(Some),
            None => match self.task.take() {
                // A task that broke off must not look like the end of the table.
                Some(task) => task.await.map(|()| None).map_err(|error| TableError::Away {
                    database: "the source".to_owned(),
                    doing: "read on",
                    reason: error.to_string(),
                }),
                None => Ok(None),
            },
        }
    }
}

async fn read(
    database: &dyn Database,
    scan: Scan,
    batches: &mpsc::Sender<Result<Batch, TableError>>,
) -> Result<(), TableError> {
    let mut rows = database.read(scan).await?;
    while let Some(batch) = rows.next().await? {
        if batches.send(Ok(batch)).await.is_err() {
            break;
        }
    }
    Ok(())
}
