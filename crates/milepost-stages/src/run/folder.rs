//! The two files of one attempt, in a folder that nobody else can look into and that is gone afterwards.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempDir};

pub(super) struct Folder {
    outputs: PathBuf,
    progress: PathBuf,
    /// Removes the folder when dropped, whichever way the attempt ends.
    _folder: TempDir,
}

impl Folder {
    /// Below the node's own folder; beside it, should somebody have cleaned that away.
    pub(super) fn below(node: &Path) -> io::Result<Self> {
        let folder = private("attempt-", |builder| builder.tempdir_in(node))
            .or_else(|_| private("milepost-attempt-", |builder| builder.tempdir()))?;
        let (outputs, progress) = (folder.path().join("outputs"), folder.path().join("progress"));
        // They exist from the start, so that a command may also read them or open them without creating.
        File::create_new(&outputs)?;
        File::create_new(&progress)?;
        Ok(Self { outputs, progress, _folder: folder })
    }

    pub(super) fn outputs(&self) -> &Path {
        &self.outputs
    }

    pub(super) fn progress(&self) -> &Path {
        &self.progress
    }
}

/// A new folder that only its owner can enter.
pub(super) fn private(
    prefix: &str,
    create: impl FnOnce(&Builder<'_, '_>) -> io::Result<TempDir>,
) -> io::Result<TempDir> {
    create(Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)))
}
