//! A node as an operator starts one: `milepost serve` on a store that others are on as well.

use std::process::Command;

use rustix::process::Signal;

use crate::place::Place;
use crate::support::{Running, World, wait_for};

pub(crate) struct Node {
    running: Running,
    pub(crate) server: String,
}

impl Node {
    pub(crate) fn start(world: &World, place: &Place, name: &str, more: &[&str]) -> Self {
        Self::start_with(world, place, name, more, |_| {})
    }

    /// The same, in other circumstances.
    pub(crate) fn start_with(
        world: &World,
        place: &Place,
        name: &str,
        more: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--allow-commands", "--node", name];
        let mut command = world.command(&[&serve, more].concat());
        command.env("MILEPOST_STORE", &place.url);
        prepare(&mut command);
        let running = world.start_command(command);
        let server = wait_for("a node to listen", || {
            let said = running.stderr();
            let (_, rest) = said.split_once("http://")?;
            let end = rest.find(|c: char| c.is_whitespace() || c == ',' || c == '/')?;
            Some(format!("http://{}", &rest[..end]))
        });
        Self { running, server }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Leaves in good order.
    pub(crate) fn stop(self) {
        self.running.signal(Signal::TERM);
        self.running.end().must_exit(0);
    }

    pub(crate) fn kill(self) {
        self.running.signal(Signal::KILL);
        assert_eq!(self.running.end().code, -1, "it had ended before it was killed");
    }

    pub(crate) fn said(&self) -> String {
        self.running.stderr()
    }
}
