//! `uses: file.copy` and `uses: file.rename`: the task's file, at another place as well or instead.
//!
//! Renaming copies, then deletes. Run again after a crash, it finds
//! - the source still there: it copies again, over what it may have copied before, and deletes;
//! - the source gone and the target there: that was it. The plan's `size`, if it names one, has to agree;
//! - both gone: that was somebody else, and it fails.

use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::TaskFile;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Map, Value, json};

use super::checksum::no_file;
use super::node::NodeFiles;
use super::place::Place;
use super::put::{Content, Source};
use super::staging::{self, Target};
use crate::parameters::only_keys;

/// `file.copy`, or `file.rename`.
#[derive(Debug, Clone)]
pub struct CopyKind {
    files: Arc<NodeFiles>,
    name: &'static str,
    /// The source goes.
    moves: bool,
}

impl CopyKind {
    pub fn copy(files: Arc<NodeFiles>) -> Self {
        Self { files, name: "file.copy", moves: false }
    }

    pub fn rename(files: Arc<NodeFiles>) -> Self {
        Self { files, name: "file.rename", moves: true }
    }

    async fn write(&self, call: &StageCall) -> Result<Outcome, Failure> {
        let Some(file) = &call.file else { return Ok(no_file()) };
        let target = Target::of(call)?;
        let source = self.source(file, &target)?;
        if let Some(size) = self.was_moved(file, &source, &target).await? {
            return Ok(written(&target, size));
        }
        let size = self.put(file, &target).await?;
        if self.moves && !staging::holds_back(&call.with) {
            self.files.delete(&source).await?;
        }
        Ok(written(&target, size))
    }

    async fn put(&self, file: &TaskFile, target: &Target) -> Result<u64, Failure> {
        let content_type = file.reference().content_type.clone();
        let content = Content { source: Source::File(file.path().await?), content_type };
        target.put(&self.files, &content).await
    }

    async fn show(&self, call: &StageCall) -> Result<(), Failure> {
        let Some(file) = &call.file else { return Ok(()) };
        let target = Target::of(call)?;
        let source = self.source(file, &target)?;
        if !target.show(&self.files).await? {
            if self.was_moved(file, &source, &target).await?.is_some() {
                return Ok(());
            }
            self.put(file, &target).await?;
            target.show(&self.files).await?;
        }
        if self.moves { self.files.delete(&source).await } else { Ok(()) }
    }

    /// Where the file comes from; refused if the target is the same, which a rename would delete.
    fn source(&self, file: &TaskFile, target: &Target) -> Result<Place, Failure> {
        let source = Place::parse(&file.reference().uri)?;
        let same = match (&source, &target.place) {
            (Place::Disk(from), Place::Disk(to)) => self.files.disk.check(from)? == self.files.disk.check(to)?,
            (from, to) => from == to,
        };
        if same {
            return Err(Failure::fatal(ErrorType::Validation, format!("`to` is where the file is already: {source}")));
        }
        if self.moves && matches!(source, Place::Web(_)) {
            let reason = format!("{source} cannot be deleted from here; `file.copy` leaves it");
            return Err(Failure::fatal(ErrorType::Validation, reason));
        }
        Ok(source)
    }

    /// The target's length, if an earlier attempt has moved it.
    async fn was_moved(&self, file: &TaskFile, source: &Place, target: &Target) -> Result<Option<u64>, Failure> {
        if !self.moves || self.files.size(source).await?.is_some() {
            return Ok(None);
        }
        let there = self.files.size(&target.place).await?;
        Ok(there.filter(|size| file.reference().size.is_none_or(|expected| expected == *size)))
    }
}

fn written(target: &Target, size: u64) -> Outcome {
    let outputs = Map::from_iter([("uri".to_owned(), json!(target.uri)), ("size".to_owned(), json!(size))]);
    Outcome::Success { outputs }
}

#[async_trait]
impl StageKind for CopyKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        staging::check(only_keys(self.name, with, &["to", "publish"])?)
    }

    async fn run(&self, call: StageCall) -> Outcome {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Outcome::Failure(Failure::retryable(ErrorType::Timeout, "cancelled")),
            outcome = self.write(&call) => outcome.unwrap_or_else(Outcome::Failure),
        }
    }

    fn holds_back(&self, with: &Value) -> bool {
        staging::holds_back(with)
    }

    async fn publish(&self, call: StageCall) -> Result<(), Failure> {
        self.show(&call).await
    }

    async fn withdraw(&self, call: StageCall) {
        if let Ok(target) = Target::of(&call) {
            target.take_away(&self.files).await;
        }
    }
}
