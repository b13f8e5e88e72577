//! A wall clock that a test sets as it likes, for one process.

use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::library::library;
use crate::support::World;

/// What a program takes for the wall clock.
pub(crate) struct WrongClock {
    file: std::fs::File,
}

impl WrongClock {
    /// The command will run by it. It is right at first.
    pub(crate) fn of(world: &World, name: &str, command: &mut Command) -> Self {
        let path = world.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        command.env("LD_PRELOAD", library("clock")).env("CLOCK", path);
        let clock = Self { file };
        clock.jump_to(0);
        clock
    }

    /// So many seconds ahead of the right time, or behind it.
    pub(crate) fn jump_to(&self, ahead: i64) {
        self.file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }
}

pub(crate) const JUMPS: [i64; 5] = [3_600, -3_600, 86_400, -86_400, 0];
