//! Where words go: data to stdout, messages to stderr. A reader that has gone away ends the output and nothing else.

use std::io::{self, Write};
use std::sync::{OnceLock, PoisonError, RwLock};

use indicatif::MultiProgress;
use serde::Serialize;

/// Progress bars that a message must not tear; none unless they are on the screen.
static BARS: OnceLock<RwLock<Option<MultiProgress>>> = OnceLock::new();

/// Bars that are on the screen until this is dropped.
#[derive(Debug)]
pub(crate) struct BarsShown;

pub(crate) fn show_bars(bars: &MultiProgress) -> BarsShown {
    *BARS.get_or_init(RwLock::default).write().unwrap_or_else(PoisonError::into_inner) = Some(bars.clone());
    BarsShown
}

impl Drop for BarsShown {
    fn drop(&mut self) {
        if let Some(bars) = BARS.get() {
            *bars.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Does something to the terminal while no bar is being drawn.
pub(crate) fn beside_bars<T>(work: impl FnOnce() -> T) -> T {
    let bars = BARS.get().and_then(|bars| bars.read().unwrap_or_else(PoisonError::into_inner).clone());
    match bars {
        Some(bars) => bars.suspend(work),
        None => work(),
    }
}

/// A line for the person who watches.
pub(crate) fn message(line: &str) {
    // With stderr gone there is nobody to tell.
    beside_bars(|| {
        let _ = writeln!(io::stderr().lock(), "{line}");
    });
}

pub(crate) fn error(text: &str) {
    message(&format!("{} {text}", console::style("error:").red().bold().for_stderr()));
}

/// Data, gathered and written to stdout.
#[derive(Debug)]
pub(crate) struct Data {
    out: io::BufWriter<io::StdoutLock<'static>>,
    closed: bool,
}

impl Data {
    pub(crate) fn new() -> Self {
        Self { out: io::BufWriter::new(io::stdout().lock()), closed: false }
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.bytes(line.as_ref().as_bytes());
        self.bytes(b"\n");
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.closed = self.out.write_all(bytes).is_err();
        }
    }

    pub(crate) fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => self.line(text),
            Err(why) => error(&format!("the answer could not be written as JSON: {why}")),
        }
    }

    /// One object to a line, for readers that follow.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(text),
            Err(why) => error(&format!("the answer could not be written as JSON: {why}")),
        }
    }

    pub(crate) fn flush(&mut self) {
        if !self.closed {
            self.closed = self.out.flush().is_err();
        }
    }

    /// Nobody reads any more.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.flush();
    }
}
