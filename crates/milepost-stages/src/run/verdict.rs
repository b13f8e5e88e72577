//! What a command's end means for its stage.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::Outcome;

use super::outputs;
use super::streams::Streams;

const SKIP: i32 = 77;

pub(super) fn judge(
    status: ExitStatus,
    fatal_exit_codes: &[i32],
    streams: &Streams,
    outputs: &std::path::Path,
) -> Outcome {
    match status.code() {
        Some(0) => match outputs::read(outputs) {
            Ok(outputs) => Outcome::Success { outputs },
            Err(failure) => Outcome::Failure(failure),
        },
        Some(SKIP) => {
            let said = streams.last_stdout_line().or_else(|| streams.last_stderr_line());
            Outcome::Skip { reason: said.unwrap_or_else(|| format!("exit code {SKIP}")) }
        }
        Some(code) => {
            let reason = explained(format!("exit code {code}"), streams);
            let fatal = fatal_exit_codes.contains(&code);
            let failure = if fatal { Failure::fatal } else { Failure::retryable };
            Outcome::Failure(failure(ErrorType::Business, reason))
        }
        None => {
            let signal = status.signal().map_or_else(|| "a signal".to_owned(), named);
            Outcome::Failure(Failure::retryable(ErrorType::Unknown, explained(format!("killed by {signal}"), streams)))
        }
    }
}

/// The command could not even be started.
pub(super) fn not_started(error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    match error.kind() {
        // No process, no memory, no file descriptor left just now.
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::QuotaExceeded | ErrorKind::StorageFull => {
            Failure::retryable(ErrorType::Unavailable, format!("the command could not be started: {error}"))
        }
        ErrorKind::ArgumentListTooLong => Failure::fatal(
            ErrorType::Validation,
            "the command and its variables are larger than the system allows (128 KiB each on Linux); \
             pass a reference instead of the input itself",
        ),
        _ if [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            Failure::retryable(ErrorType::Unavailable, format!("the command could not be started: {error}"))
        }
        ErrorKind::InvalidInput => {
            Failure::fatal(ErrorType::Validation, format!("the command could not be started: {error}"))
        }
        _ => Failure::fatal(ErrorType::Unknown, format!("the command could not be started: {error}")),
    }
}

fn explained(what: String, streams: &Streams) -> String {
    match streams.last_stderr_line() {
        Some(line) => format!("{what}: {line}"),
        None => what,
    }
}

fn named(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}
