//! Files of this machine: which of them plans may touch, and reading them piece by piece.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use milepost_core::failure::{ErrorType, Failure};
use tokio::io::AsyncReadExt;

use super::node::DiskAccess;

const PIECE: usize = 256 * 1024;

impl DiskAccess {
    /// The path with every link in it followed, if plans may touch what is there or would be.
    pub(crate) fn check(&self, path: &Path) -> Result<PathBuf, Failure> {
        let real = real(path).map_err(|error| failure(path, &error))?;
        let allowed = match self {
            DiskAccess::Everywhere => true,
            DiskAccess::Below(folders) => folders.iter().any(|folder| {
                // A folder that is not there has nothing below it.
                folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
            }),
        };
        if allowed {
            return Ok(real);
        }
        let reason = format!("{} is outside the folders that plans may touch on this node", path.display());
        Err(Failure::fatal(ErrorType::Validation, reason))
    }
}

/// Like `canonicalize`, for a path whose end may not be there yet.
fn real(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A link that leads nowhere is still a link: what is written there appears at its other end.
            if path.symlink_metadata().is_ok() {
                return Err(error);
            }
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(real(parent)?.join(name)),
                _ => Err(error),
            }
        }
        answer => answer,
    }
}

/// The file's length, and its bytes in pieces.
pub(super) async fn read(path: &Path) -> Result<(u64, BoxStream<'static, Result<Bytes, Failure>>), Failure> {
    let shown = path.to_owned();
    let failed = move |error: io::Error| failure(&shown, &error);
    // Looked at before it is opened: opening a pipe would wait for somebody who writes.
    let about = tokio::fs::metadata(path).await.map_err(&failed)?;
    if !about.is_file() {
        return Err(Failure::fatal(ErrorType::Validation, format!("{} is not a file", path.display())));
    }
    let file = tokio::fs::File::open(path).await.map_err(&failed)?;
    let pieces = futures::stream::try_unfold(file, move |mut file| {
        let failed = failed.clone();
        async move {
            let mut piece = Vec::with_capacity(PIECE);
            let read = file.read_buf(&mut piece).await.map_err(failed)?;
            Ok((read > 0).then(|| (Bytes::from(piece), file)))
        }
    });
    Ok((about.len(), pieces.boxed()))
}

/// None if there is no file.
pub(super) async fn size(path: &Path) -> Result<Option<u64>, Failure> {
    match tokio::fs::metadata(path).await {
        Ok(about) => Ok(Some(about.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure(path, &error)),
    }
}

/// What a disk says, and whether another try can help.
pub(super) fn failure(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::fatal(ErrorType::Business, format!("there is no file {path}")),
        io::ErrorKind::PermissionDenied => Failure::fatal(ErrorType::Business, format!("{path}: {error}")),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::retryable(ErrorType::Unavailable, format!("the disk is full: {path} could not be written"))
        }
        _ => Failure::retryable(ErrorType::Unavailable, format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_really_below_an_allowed_folder_may_be_touched() {
        let world = tempfile::tempdir().unwrap();
        let (inside, outside) = (world.path().join("inside"), world.path().join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(inside.join("a"), "").unwrap();
        std::fs::write(outside.join("secret"), "").unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), inside.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("new"), inside.join("dangling")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("folder")).unwrap();
        let access = DiskAccess::Below(vec![inside.clone()]);
        for good in ["a", "new", "new/folder/file"] {
            assert!(access.check(&inside.join(good)).is_ok(), "{good}");
        }
        for bad in ["link", "dangling", "folder/secret", "folder/new", "../outside/secret"] {
            assert!(access.check(&inside.join(bad)).is_err(), "{bad}");
        }
        assert!(DiskAccess::Below(Vec::new()).check(&inside.join("a")).is_err());
        assert!(DiskAccess::Everywhere.check(&outside.join("secret")).is_ok());
    }
}
