//! Who may write the file: one process at a time, by a lock that the kernel gives back when that process dies.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::open::redacted;

/// Held as long as this lives. The file stays behind, and only the lock on it counts.
#[derive(Debug)]
pub(super) struct OwnerLock {
    _file: File,
}

impl OwnerLock {
    pub(super) fn acquire(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, "owner");
        let unavailable = |source: std::io::Error| StoreError::Unavailable {
            backend: "sqlite",
            operation: "lock the store for this process",
            source: source.into(),
        };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(unavailable)?;
        let mut tries = 0;
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            tries += 1;
            match errno {
                // It may be a reader that only looks whether there is an owner; that takes it no time at all.
                Errno::WOULDBLOCK if tries < 5 => std::thread::sleep(std::time::Duration::from_millis(10)),
                Errno::WOULDBLOCK => return Err(owned(database, &mut file)),
                errno => return Err(unavailable(errno.into())),
            }
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(unavailable)?;
        writeln!(file, "{}", std::process::id()).map_err(unavailable)?;
        Ok(Self { _file: file })
    }
}

/// Whether some process owns the database just now.
pub(super) fn is_owned(database: &Path) -> bool {
    let Ok(file) = File::open(beside(database, "owner")) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// A file that belongs to the database: `milepost.db.owner`, `milepost.db.sock`.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn owned(database: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    // The other process may be writing its pid just now; an unreadable one is shown as 0.
    let _ = file.read_to_string(&mut text);
    let pid = text.trim().parse().unwrap_or(0);
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command =
        String::from_utf8_lossy(&command).trim_end_matches('\0').split('\0').map(redacted).collect::<Vec<_>>();
    let command = command.join(" ");
    let command = if command.is_empty() { String::new() } else { format!(" (`{command}`)") };
    StoreError::Owned { path: database.display().to_string(), pid, command }
}
