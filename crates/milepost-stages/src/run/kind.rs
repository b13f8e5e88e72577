//! One attempt of `run:`, from starting the shell to an outcome with nothing left running.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::files::Files;
use super::group::{GONE_WITHIN, GRACE, Group};
use super::progress::ProgressFile;
use super::streams::Streams;
use super::{environment, guard, progress, verdict};

/// `run:` hands its text verbatim to `sh -c`, in the working directory of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunKind;

impl RunKind {
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl StageKind for RunKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        environment::check(with)
    }

    async fn run(&self, call: StageCall) -> Outcome {
        let file = match call.file_path().await {
            Ok(file) => file,
            Err(failure) => return Outcome::Failure(failure),
        };
        match Running::start(&call, file.as_deref()) {
            Ok(command) => command.attend(&call).await,
            Err(failure) => Outcome::Failure(failure),
        }
    }
}

/// A started command. Dropping it ends its processes and removes its files.
struct Running {
    // In this order: the processes go before the files they write to.
    group: Group,
    shell: Child,
    streams: Streams,
    files: Files,
}

impl Running {
    fn start(call: &StageCall, file: Option<&Path>) -> Result<Self, Failure> {
        let Some(script) = &call.script else {
            return Err(Failure::fatal(ErrorType::Validation, "`run` needs a command"));
        };
        let not_started = |error| verdict::not_started(&error);
        let guarded = guard::guarded().map_err(not_started)?;
        let files = Files::below(&guarded.folder).map_err(not_started)?;
        let variables = environment::variables(call, file, &files, &guarded)?;
        let (shell, streams) = start_shell(script, variables, call).map_err(not_started)?;
        Ok(Self { group: Group::led_by(&shell), shell, streams, files })
    }

    async fn attend(mut self, call: &StageCall) -> Outcome {
        let Self { group, shell, streams, files } = &mut self;
        let mut progress = ProgressFile::at(files.progress());
        let end = until_the_shell_ends(call, shell, group, streams, &mut progress).await;
        let patience = end.cancelled_at.map(|at| at + GRACE);
        group.end(patience, streams).await;
        streams.pass_on_the_rest();
        progress.finish(&call.reporter);
        if end.cancelled_at.is_some() {
            return Outcome::Failure(Failure::retryable(ErrorType::Timeout, "cancelled"));
        }
        match end.status {
            Ok(status) => verdict::judge(status, &call.retry.fatal_exit_codes, streams, files.outputs()),
            Err(error) => {
                let reason = format!("the command's end could not be learned: {error}");
                Outcome::Failure(Failure::retryable(ErrorType::Unknown, reason))
            }
        }
    }
}

/// Without a hook between fork and exec, the standard library needs no copy of this process to start another one.
fn start_shell(
    script: &str,
    variables: Vec<(String, std::ffi::OsString)>,
    call: &StageCall,
) -> io::Result<(Child, Streams)> {
    let (stdout, stdout_of_shell) = io::pipe()?;
    let (stderr, stderr_of_shell) = io::pipe()?;
    let streams = Streams::new(stdout, stderr, call.reporter.clone())?;
    // With its path, so that a PATH in `env:` changes what the script finds, but not which shell runs it.
    let shell = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .envs(variables)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout_of_shell)
        .stderr(stderr_of_shell)
        .spawn()?;
    Ok((shell, streams))
}

struct End {
    status: io::Result<ExitStatus>,
    cancelled_at: Option<Instant>,
}

async fn until_the_shell_ends(
    call: &StageCall,
    shell: &mut Child,
    group: &Group,
    streams: &mut Streams,
    progress: &mut ProgressFile<'_>,
) -> End {
    let mut looks = interval_at(Instant::now() + progress::LOOK_EVERY, progress::LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut cancelled_at = None;
    let mut killed = false;
    // Only looked at once the attempt is cancelled.
    let mut deadline = Instant::now();
    loop {
        tokio::select! {
            // Output comes last: a command that never stops printing must not keep us from ending it.
            biased;
            () = call.cancel.cancelled(), if cancelled_at.is_none() => {
                let now = Instant::now();
                (cancelled_at, deadline) = (Some(now), now + GRACE);
                group.terminate();
            }
            () = sleep_until(deadline), if cancelled_at.is_some() => {
                if killed {
                    return End { status: Err(io::ErrorKind::TimedOut.into()), cancelled_at };
                }
                (killed, deadline) = (true, deadline + GONE_WITHIN);
                group.kill();
            }
            status = shell.wait() => return End { status, cancelled_at },
            _ = looks.tick() => progress.look(&call.reporter),
            () = streams.pass_on() => {}
        }
    }
}
