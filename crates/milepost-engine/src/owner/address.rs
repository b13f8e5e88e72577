//! Where the socket is. The kernel takes addresses of 107 bytes, and directories may lie deeper than that.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use milepost_store::sqlite::SqliteStore;
use rustix::fs::{Mode, OFlags, open};

/// `sun_path`, less the byte that ends it.
const LONGEST: usize = 107;
/// What is left for a name after `/proc/self/fd/NNNNNNNNNN/`.
const LONGEST_NAME: usize = 80;

/// An address that is short enough, as long as this lives.
#[derive(Debug)]
pub(super) struct Address {
    /// The file itself, to remove it.
    pub(super) file: PathBuf,
    short: PathBuf,
    _directory: Option<File>,
}

impl Address {
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let mut file = SqliteStore::socket_path(database);
        let name = file.file_name().unwrap_or_default().to_owned();
        if name.len() > LONGEST_NAME {
            file.set_file_name(format!(".milepost-{:016x}.sock", hash(&name)));
        }
        if file.as_os_str().len() <= LONGEST {
            return Ok(Self { short: file.clone(), file, _directory: None });
        }
        // A path through the open directory is short however deep that lies.
        let parent = file.parent().unwrap_or(Path::new("/"));
        let directory = File::from(open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let short = through.join(file.file_name().unwrap_or_default());
        Ok(Self { file, short, _directory: Some(directory) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.short
    }
}

/// FNV-1a: owner and caller have to come to the same name, also when they are not the same build.
fn hash(name: &OsStr) -> u64 {
    name.as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_deep_directory_or_a_long_name_can_be_bound_and_reached() {
        let root = tempfile::tempdir().unwrap();
        let deep = (0..4).fold(root.path().to_owned(), |path, _| path.join("d".repeat(60)));
        std::fs::create_dir_all(&deep).unwrap();
        for database in [deep.join("milepost.db"), deep.join("n".repeat(200)), root.path().join("n".repeat(200))] {
            let bound = Address::of(&database).unwrap();
            let _listener = std::os::unix::net::UnixListener::bind(bound.path()).unwrap();
            assert!(bound.file.exists());
            let called = Address::of(&database).unwrap();
            std::os::unix::net::UnixStream::connect(called.path()).unwrap();
        }
    }

    #[test]
    fn an_ordinary_socket_lies_beside_its_store() {
        let address = Address::of(Path::new("/x/milepost.db")).unwrap();
        assert_eq!(address.path(), Path::new("/x/milepost.db.sock"));
    }
}
