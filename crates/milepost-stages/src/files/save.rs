//! From pieces to a file: counted, checked, and under its own name only when it is whole.

use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::FileRef;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::disk;

/// Never all of a disk: others write to it as well.
const SPARE: u64 = 64 * 1024 * 1024;

/// What a file has to be.
pub(super) struct Expected<'a> {
    pub(super) shown: &'a str,
    pub(super) file: &'a FileRef,
    /// What its place says it has, if it says.
    pub(super) announced: Option<u64>,
    pub(super) max_bytes: u64,
}

impl Expected<'_> {
    /// Says what can be said before the first byte is read.
    pub(super) fn check(&self, folder: &Path) -> Result<(), Failure> {
        let Some(size) = self.announced.or(self.file.size) else { return Ok(()) };
        self.check_limit(size)?;
        self.check_size(size)?;
        // Not knowing how much room there is is no reason not to try.
        let Ok(space) = rustix::fs::statvfs(folder) else { return Ok(()) };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if size.saturating_add(SPARE) > free {
            let reason = format!("{} has {size} bytes, and {} has room for {free}", self.shown, folder.display());
            return Err(Failure::retryable(ErrorType::Unavailable, reason));
        }
        Ok(())
    }

    fn check_limit(&self, size: u64) -> Result<(), Failure> {
        if size <= self.max_bytes {
            return Ok(());
        }
        let reason = format!("{} is larger than the {} bytes that this node fetches", self.shown, self.max_bytes);
        Err(Failure::fatal(ErrorType::Persistence, reason))
    }

    fn check_size(&self, size: u64) -> Result<(), Failure> {
        match self.file.size {
            Some(expected) if expected != size => {
                let reason = format!("{} has {size} bytes and should have {expected}", self.shown);
                Err(Failure::fatal(ErrorType::Validation, reason))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes all pieces to `to`, by way of `part` beside it.
    pub(super) async fn save(
        &self,
        mut pieces: BoxStream<'static, Result<Bytes, Failure>>,
        part: &Path,
        to: &Path,
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| disk::failure(part, &error);
        let mut file = tokio::fs::File::create(part).await.map_err(failed)?;
        let mut digest = self.file.sha256.is_some().then(Sha256::new);
        let mut size: u64 = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            size += piece.len() as u64;
            self.check_limit(size)?;
            if let Some(digest) = &mut digest {
                digest.update(&piece);
            }
            file.write_all(&piece).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        self.check_size(size)?;
        if let (Some(digest), Some(expected)) = (digest, &self.file.sha256) {
            let found = hexadecimal(&digest.finalize());
            if !found.eq_ignore_ascii_case(expected) {
                let reason = format!("{} has the SHA-256 checksum {found} and should have {expected}", self.shown);
                return Err(Failure::fatal(ErrorType::Validation, reason));
            }
        }
        tokio::fs::rename(part, to).await.map_err(failed)
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
