//! A program whose disk fails, or that dies, at exactly the call that a test names.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Running, World};

/// Which calls are struck, counted from 1 over all threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) call: Call,
    pub(crate) strike: Strike,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What the database asks of the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Sync,
    Write,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Strike {
    KillBefore,
    KillAfter,
    /// The call answers this error.
    Error(rustix::io::Errno),
}

impl Fault {
    pub(crate) fn start(self, world: &World, args: &[&str]) -> Running {
        let action = match self.strike {
            Strike::KillBefore => "kill-before".to_owned(),
            Strike::KillAfter => "kill-after".to_owned(),
            Strike::Error(errno) => errno.raw_os_error().to_string(),
        };
        let call = match self.call {
            Call::Sync => "sync",
            Call::Write => "write",
        };
        let mut command = world.command(args);
        command.env("LD_PRELOAD", library());
        command.env("FAULT", format!("{call} {action} {} {}", self.first, self.last));
        world.start_command(command)
    }
}

/// Compiled once; whoever built the program has a C compiler, because SQLite is in it.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crash/faults.c");
        // Beside the test itself. Moved there when it is whole: another run of the tests may be using the one it made.
        let library = std::env::current_exe().unwrap().with_extension("faults.so");
        let unfinished = library.with_extension(std::process::id().to_string());
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"];
        let status = Command::new(compiler).args(flags).arg(&unfinished).arg(source).arg("-ldl").status().unwrap();
        assert!(status.success(), "{source} does not compile");
        std::fs::rename(&unfinished, &library).unwrap();
        library
    })
}
