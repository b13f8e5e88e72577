//! Where an attempt leaves its outputs and its progress: two files that nobody else can read, gone afterwards.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::{Builder, TempDir};

/// The paths of one attempt's files in its node's private folder. A folder per attempt would cost a third of all
/// commands a second on a disk; the files themselves cost nothing until a command writes to them.
pub(super) struct Files {
    outputs: PathBuf,
    progress: PathBuf,
    /// Only when the node's own folder was cleaned away by somebody.
    _substitute: Option<TempDir>,
}

impl Files {
    pub(super) fn below(node: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let substitute = if node.is_dir() { None } else { Some(private_folder("milepost-attempt-")?) };
        let folder = substitute.as_ref().map_or(node, TempDir::path);
        let (outputs, progress) = (folder.join(format!("{number}.outputs")), folder.join(format!("{number}.progress")));
        Ok(Self { outputs, progress, _substitute: substitute })
    }

    pub(super) fn outputs(&self) -> &Path {
        &self.outputs
    }

    pub(super) fn progress(&self) -> &Path {
        &self.progress
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.outputs, &self.progress] {
            match std::fs::remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::debug!(%error, path = %path.display(), "could not remove a temporary file"),
            }
        }
    }
}

/// A new folder that only its owner can enter.
pub(super) fn private_folder(prefix: &str) -> io::Result<TempDir> {
    Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir()
}
