//! Writing files to where they belong: at any moment there is the old one, none, or the whole new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use milepost_core::failure::{ErrorType, Failure};
use object_store::buffered::BufWriter;
use object_store::{Attribute, Attributes};
use tokio::io::{AsyncRead, AsyncWriteExt};

use super::node::NodeFiles;
use super::place::Place;
use super::{disk, objects};

/// What is to be written.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) source: Source,
    pub(super) content_type: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Source {
    File(Arc<Path>),
    Bytes(Bytes),
}

impl NodeFiles {
    /// Answers how many bytes that were.
    pub(super) async fn put(&self, content: &Content, to: &Place) -> Result<u64, Failure> {
        let mut from: Box<dyn AsyncRead + Send + Unpin> = match &content.source {
            Source::File(path) => {
                Box::new(tokio::fs::File::open(path).await.map_err(|error| disk::failure(path, &error))?)
            }
            Source::Bytes(bytes) => Box::new(std::io::Cursor::new(bytes.clone())),
        };
        match to {
            Place::Disk(path) => put_on_disk(&mut from, &self.disk.check(path)?).await,
            Place::Object { bucket, key } => {
                let mut attributes = Attributes::new();
                if let Some(content_type) = &content.content_type {
                    attributes.insert(Attribute::ContentType, content_type.clone().into());
                }
                let writer = BufWriter::new(self.buckets.get(bucket)?, key.clone());
                put_object(&mut from, writer.with_attributes(attributes), &to.to_string()).await
            }
            Place::Web(_) => Err(read_only(to)),
        }
    }

    /// How long what is there is; none if nothing is there.
    pub(super) async fn size(&self, place: &Place) -> Result<Option<u64>, Failure> {
        match place {
            Place::Disk(path) => disk::size(&self.disk.check(path)?).await,
            Place::Object { bucket, key } => self.buckets.size(bucket, key).await,
            Place::Web(_) => Err(read_only(place)),
        }
    }

    /// Between two names of one folder or bucket.
    pub(super) async fn rename(&self, from: &Place, to: &Place) -> Result<(), Failure> {
        match (from, to) {
            (Place::Disk(from), Place::Disk(to)) => {
                let (from, to) = (self.disk.check(from)?, self.disk.check(to)?);
                tokio::fs::rename(&from, &to).await.map_err(|error| disk::failure(&to, &error))
            }
            (Place::Object { bucket, key }, Place::Object { bucket: other, key: to }) if bucket == other => {
                self.buckets.rename(bucket, key, to).await
            }
            _ => Err(read_only(to)),
        }
    }

    /// What is not there is as good as deleted.
    pub(super) async fn delete(&self, place: &Place) -> Result<(), Failure> {
        match place {
            Place::Disk(path) => {
                let path = self.disk.check(path)?;
                match tokio::fs::remove_file(&path).await {
                    Ok(()) => Ok(()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(disk::failure(&path, &error)),
                }
            }
            Place::Object { bucket, key } => self.buckets.delete(bucket, key).await,
            Place::Web(_) => Err(read_only(place)),
        }
    }
}

/// A disk shows a file while it is being written, so that goes on under another name. Should an attempt that was fenced
/// off still be writing there as well, it writes the same bytes to the same places.
async fn put_on_disk(from: &mut (dyn AsyncRead + Send + Unpin), to: &Path) -> Result<u64, Failure> {
    let part = part_of(to);
    let failed = |error: std::io::Error| disk::failure(to, &error);
    if let Some(folder) = to.parent() {
        tokio::fs::create_dir_all(folder).await.map_err(failed)?;
    }
    let mut file = tokio::fs::File::create(&part).await.map_err(failed)?;
    let written = async {
        let size = tokio::io::copy(from, &mut file).await?;
        file.flush().await?;
        // The log will say that it is there, and the log survives a loss of power.
        file.sync_all().await?;
        tokio::fs::rename(&part, to).await?;
        Ok(size)
    };
    match written.await {
        Ok(size) => Ok(size),
        Err(error) => {
            let _ = tokio::fs::remove_file(&part).await;
            Err(failed(error))
        }
    }
}

fn part_of(to: &Path) -> PathBuf {
    let name = super::staging::name_for(&to.to_string_lossy());
    to.with_file_name(format!("{name}.part"))
}

/// An object appears when its last byte has arrived, and not before.
async fn put_object(from: &mut (dyn AsyncRead + Send + Unpin), mut to: BufWriter, shown: &str) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(error) => objects::failure(shown, error),
        None => Failure::retryable(ErrorType::Network, format!("{shown}: {error}")),
    };
    match tokio::io::copy(from, &mut to).await {
        Ok(size) => to.shutdown().await.map(|()| size).map_err(failed),
        Err(error) => {
            let _ = to.abort().await;
            Err(failed(error))
        }
    }
}

fn read_only(place: &Place) -> Failure {
    Failure::fatal(ErrorType::Validation, format!("{place} can only be read: write to `file:///…` or `s3://…`"))
}
