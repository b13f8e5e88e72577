//! What this node does with files: where it may get them, where it keeps them, and how large they may be.

use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::TaskId;
use milepost_core::plan::FileRef;
use milepost_engine::{Brought, Files};

use super::disk;
use super::folder::WorkFolder;
use super::objects::Buckets;
use super::place::Place;
use super::save::Expected;
use crate::http::Fetcher;

/// The longest name of a file that every file system takes.
const LONGEST_NAME: usize = 255;

#[derive(Debug, Clone)]
pub struct FileSettings {
    /// Files are brought to a folder below this one.
    pub work_dir: PathBuf,
    /// Larger files are refused.
    pub max_bytes: u64,
    /// Which files of this machine plans may read and write.
    pub disk: DiskAccess,
    /// Lets files come from link-local and cloud metadata addresses as well.
    pub allow_link_local: bool,
}

/// Which files of this machine plans may read and write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskAccess {
    /// Whatever this process may: for plans whose authors could run commands here anyway.
    Everywhere,
    /// Only what is below these folders; none means none.
    Below(Vec<PathBuf>),
}

impl Default for FileSettings {
    /// In the system's temporary folder, up to 5 GiB, and nothing of this machine's own files.
    fn default() -> Self {
        // Of this user alone: the name of another's folder must not stand in the way.
        let name = format!("milepost-files-{}", rustix::process::geteuid().as_raw());
        Self {
            work_dir: std::env::temp_dir().join(name),
            max_bytes: 5 * 1024 * 1024 * 1024,
            disk: DiskAccess::Below(Vec::new()),
            allow_link_local: false,
        }
    }
}

/// Brings files to this node, and takes what stages make of them to where it belongs.
#[derive(Debug)]
pub struct NodeFiles {
    pub(super) disk: DiskAccess,
    pub(super) buckets: Buckets,
    max_bytes: u64,
    folder: WorkFolder,
    web: Fetcher,
}

impl NodeFiles {
    /// Touches nothing yet.
    pub fn new(settings: FileSettings) -> Self {
        Self {
            disk: settings.disk,
            buckets: Buckets::default(),
            max_bytes: settings.max_bytes,
            // Commands may change their working directory before they look at a file.
            folder: WorkFolder::new(std::path::absolute(&settings.work_dir).unwrap_or(settings.work_dir)),
            web: Fetcher::new(settings.allow_link_local),
        }
    }

    /// Removes what earlier processes left when they were killed. For a node that starts.
    pub fn sweep(&self) {
        match self.folder.sweep() {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed files that earlier processes left behind"),
            Err(error) => {
                let folder = self.folder.root().display();
                tracing::warn!(%error, %folder, "files that earlier processes left behind could not be removed");
            }
        }
    }

    /// How long it is, if its place says so, and its bytes in pieces.
    async fn open(&self, place: &Place) -> Result<(Option<u64>, BoxStream<'static, Result<Bytes, Failure>>), Failure> {
        match place {
            Place::Disk(path) => {
                let (size, pieces) = disk::read(&self.disk.check(path)?).await?;
                Ok((Some(size), pieces))
            }
            Place::Object { bucket, key } => {
                let (size, pieces) = self.buckets.read(bucket, key).await?;
                Ok((Some(size), pieces))
            }
            Place::Web(url) => self.web.get(url.clone()).await,
        }
    }
}

#[async_trait]
impl Files for NodeFiles {
    async fn bring(&self, task: &TaskId, file: &FileRef) -> Result<Brought, Failure> {
        let place = Place::parse(&file.uri)?;
        let shown = place.to_string();
        let (announced, pieces) = self.open(&place).await?;
        let unusable = |error| {
            let reason = format!("the work folder {} cannot be used: {error}", self.folder.root().display());
            Failure::retryable(ErrorType::Unavailable, reason)
        };
        // Removed when it is dropped: also when this is cut short.
        let folder = self.folder.place().map_err(unusable)?;
        let expected = Expected { shown: &shown, file, announced, max_bytes: self.max_bytes };
        expected.check(folder.path())?;
        let path = folder.path().join(local_name(file.file_name()));
        expected.save(pieces, &folder.path().join(".part"), &path).await?;
        tracing::debug!(%task, file = shown, path = %path.display(), "a file was fetched");
        Ok(Brought::new(path, folder))
    }
}

/// What it is called here: its own name, so that commands see what kind of file it is, if that can be a name.
fn local_name(name: &str) -> &str {
    let fits = name.len() <= LONGEST_NAME && !name.starts_with('.') && !name.contains(['/', '\0']);
    if fits { name } else { "file" }
}
