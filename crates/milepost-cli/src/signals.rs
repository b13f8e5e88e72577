//! Ctrl-C and SIGTERM: once is a request, twice is an order.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on neither signal ends the process by itself.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::OutOfReach, format!("cannot listen for signals: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
