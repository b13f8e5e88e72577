//! Where files are put on this node: a folder of this process alone, below one that processes come and go in.
//!
//! A process holds a lock on its folder for as long as it lives, so whoever starts later can tell what a dead one left.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use tempfile::{Builder, TempDir};

const PREFIX: &str = "node-";
const LOCK: &str = "lock";

#[derive(Debug)]
pub(super) struct WorkFolder {
    root: PathBuf,
    /// Made when the first file is fetched: most nodes never need it.
    own: Mutex<Option<Own>>,
}

#[derive(Debug)]
struct Own {
    folder: TempDir,
    /// Closed by the system when this process ends, however it ends.
    _lock: File,
}

impl WorkFolder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, own: Mutex::default() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A new folder for one file, gone with the value.
    pub(super) fn place(&self) -> io::Result<TempDir> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have cleaned it away.
        let lost = own.as_ref().is_some_and(|own| !own.folder.path().is_dir());
        if own.is_none() || lost {
            *own = Some(self.make()?);
        }
        let own = own.as_ref().expect("it was just made");
        Builder::new().prefix("task-").tempdir_in(own.folder.path())
    }

    /// Removes what processes that are gone left behind. Answers how many folders that were.
    pub(super) fn sweep(&self) -> io::Result<usize> {
        if !self.root.is_dir() {
            return Ok(0);
        }
        let _alone = self.alone()?;
        let mut removed = 0;
        for entry in std::fs::read_dir(&self.root)? {
            let path = entry?.path();
            let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && !is_held(&path) {
                std::fs::remove_dir_all(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn make(&self) -> io::Result<Own> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        if std::fs::metadata(&self.root)?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the work folder belongs to somebody else"));
        }
        let _alone = self.alone()?;
        let folder = Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(&self.root)?;
        let lock = File::create(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Own { folder, _lock: lock })
    }

    /// Nobody makes a folder while another looks which ones are held: a new one is not, for a moment.
    fn alone(&self) -> io::Result<File> {
        let file = File::options().create(true).truncate(false).write(true).open(self.root.join(LOCK))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

fn is_held(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_swept_and_what_a_living_one_has_is_not() {
        let root = tempfile::tempdir().unwrap();
        let living = WorkFolder::new(root.path().to_owned());
        let kept = living.place().unwrap();
        // As a process leaves it that was killed: the folder and its lock file, which nobody holds.
        let orphan = root.path().join("node-orphan");
        std::fs::create_dir_all(orphan.join("task-1")).unwrap();
        std::fs::write(orphan.join("task-1/file"), "left behind").unwrap();
        File::create(orphan.join(LOCK)).unwrap();
        let strange = root.path().join("not-ours");
        std::fs::create_dir(&strange).unwrap();

        assert_eq!(WorkFolder::new(root.path().to_owned()).sweep().unwrap(), 1);

        assert!(!orphan.exists());
        assert!(kept.path().exists() && strange.exists());
    }

    #[test]
    fn a_node_that_fetches_nothing_makes_no_folder() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        assert_eq!(WorkFolder::new(work.clone()).sweep().unwrap(), 0);
        assert!(!work.exists());
    }
}
