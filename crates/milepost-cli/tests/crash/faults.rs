//! A program whose disk fails, or that dies, at exactly the call that a test names.

use crate::library::library;
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
        command.env("LD_PRELOAD", library("faults"));
        command.env("FAULT", format!("{call} {action} {} {}", self.first, self.last));
        world.start_command(command)
    }
}
