//! One task's page: the one way in which its runner writes.

use std::sync::Arc;
use std::time::Duration;

use milepost_store::StoredTask;

use super::behind::{Behind, Writing};
use super::entry::{Entry, NotWritten};
use super::writer::{Lost, Writer};
use crate::engine::Inner;
use crate::health::OnStoreLoss;
use crate::nodes::CutOff;

/// A store that has not taken an entry by then is away; less than that is waited for by every node.
const AWAY_AFTER: Duration = Duration::from_secs(2);
/// The same for a task that would fail for it: a store that is only slow, and has refused nothing, has more time.
const SLOW_FOR: Duration = Duration::from_secs(10);

pub(crate) struct Ledger {
    inner: Arc<Inner>,
    /// None while the store is behind.
    writer: Option<Writer>,
    behind: Option<Behind>,
    /// The last version that was written, or is kept to be.
    version: u64,
}

impl Ledger {
    pub(crate) fn new(inner: Arc<Inner>, stored: &StoredTask, cut_off: CutOff) -> Self {
        let writer = Writer::new(inner.clone(), stored, cut_off);
        Self { inner, writer: Some(writer), behind: None, version: stored.task.version() }
    }

    /// The version that the store has, or will have.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Writes the entry, or does what the node is told to when the store is away. What ends or gives back a task is
    /// always waited for: there is nothing that could go on without it.
    pub(crate) async fn write(&mut self, entry: Entry) -> Result<(), NotWritten> {
        match self.inner.health.on_loss() {
            OnStoreLoss::Continue if entry.goes_on() => self.write_or_go_ahead(entry).await,
            OnStoreLoss::Fail if entry.goes_on() => self.write_or_fail(entry).await,
            OnStoreLoss::Hold | OnStoreLoss::Continue | OnStoreLoss::Fail => self.insist(entry).await,
        }
    }

    /// Waits until the entry is durable: somebody is told so.
    pub(crate) async fn insist(&mut self, entry: Entry) -> Result<(), NotWritten> {
        let version = entry.task.version();
        let entry = match &self.behind {
            Some(behind) => behind.keep(entry),
            None => Some(entry),
        };
        self.catch_up().await?;
        if let Some(entry) = entry {
            self.writer()?.insist(entry).await.map_err(|Lost| NotWritten::Lost)?;
        }
        self.version = version;
        Ok(())
    }

    async fn write_or_fail(&mut self, entry: Entry) -> Result<(), NotWritten> {
        let version = entry.task.version();
        let inner = self.inner.clone();
        let away = async {
            tokio::time::sleep(AWAY_AFTER).await;
            if !inner.health.is_away() {
                tokio::time::sleep(SLOW_FOR).await;
            }
        };
        let writer = self.writer()?;
        tokio::select! {
            biased;
            written = writer.insist(entry.clone()) => {
                written.map_err(|Lost| NotWritten::Lost)?;
                self.version = version;
                Ok(())
            }
            () = away => Err(NotWritten::Away(Box::new(entry))),
        }
    }

    async fn write_or_go_ahead(&mut self, entry: Entry) -> Result<(), NotWritten> {
        let version = entry.task.version();
        let kept = self.behind.as_ref().map(|behind| behind.keep(entry.clone()));
        match kept {
            Some(None) => {}
            // It has caught up in this moment.
            Some(Some(entry)) => {
                self.catch_up().await?;
                self.try_to_write(entry).await?;
            }
            None => self.try_to_write(entry).await?,
        }
        self.version = version;
        Ok(())
    }

    async fn try_to_write(&mut self, entry: Entry) -> Result<(), NotWritten> {
        let Some(mut writer) = self.writer.take() else { return Err(NotWritten::Lost) };
        let sent = entry.clone();
        let mut writing: Writing = Box::pin(async move {
            let written = writer.insist(sent).await;
            (writer, written)
        });
        match tokio::time::timeout(AWAY_AFTER, &mut writing).await {
            Ok((writer, written)) => {
                self.writer = Some(writer);
                written.map_err(|Lost| NotWritten::Lost)
            }
            Err(_) => {
                self.behind = Some(Behind::begin(entry, &self.inner, writing));
                Ok(())
            }
        }
    }

    /// Waits until the store knows all that was kept for it.
    async fn catch_up(&mut self) -> Result<(), NotWritten> {
        let Some(behind) = self.behind.take() else { return Ok(()) };
        let Some((writer, written)) = behind.caught_up().await else { return Err(NotWritten::Lost) };
        self.writer = Some(writer);
        written.map_err(|Lost| NotWritten::Lost)
    }

    fn writer(&mut self) -> Result<&mut Writer, NotWritten> {
        self.writer.as_mut().ok_or(NotWritten::Lost)
    }
}
