//! What the engine has to say about itself: to stderr, without tearing progress bars.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::output::beside_bars;

/// `RUST_LOG` rules when it is set; else `-v` and `-vv` say more than warnings, and `-q` says only errors.
pub(crate) fn start(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(BesideBars)
        .with_ansi(console::colors_enabled_stderr())
        .with_target(false)
        .finish();
    // A second call in one process would be refused, and the first one stands.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

#[derive(Debug, Clone, Copy)]
struct BesideBars;

impl<'a> MakeWriter<'a> for BesideBars {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for BesideBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        beside_bars(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
