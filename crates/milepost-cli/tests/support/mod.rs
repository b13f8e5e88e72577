//! The real binary in a directory of its own: run it, start it, stop it, ask it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// A working directory with a store in it, gone when the test is over.
pub(crate) struct World {
    directory: TempDir,
    started: AtomicUsize,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command that still runs; killed if the test leaves it behind.
pub(crate) struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), started: AtomicUsize::new(0) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// The binary, in this directory, without the settings of whoever runs the tests.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1").env("USER", "tester");
        for name in ["MILEPOST_STORE", "MILEPOST_SERVER", "MILEPOST_TOKEN", "RUST_LOG", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn milepost(&self, args: &[&str]) -> Finished {
        self.start(args).end()
    }

    /// Runs a command that must succeed.
    pub(crate) fn good(&self, args: &[&str]) -> Finished {
        self.milepost(args).must_exit(0)
    }

    /// Starts a command and lets it run.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_command(self.command(args))
    }

    pub(crate) fn start_command(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let output = |kind: &str| self.path().join(format!(".{kind}-{number}"));
        let (stdout, stderr) = (output("stdout"), output("stderr"));
        // Files, not pipes: a command that says much must not wait for the test to listen.
        command.stdout(fs::File::create(&stdout).unwrap()).stderr(fs::File::create(&stderr).unwrap());
        Running { child: command.spawn().unwrap(), stdout, stderr }
    }

    /// What a command that must succeed answers with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let finished = self.good(&[args, &["--json"]].concat());
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
    }

    /// The status of a plan or task, or nothing while it is not there.
    pub(crate) fn status(&self, id: &str) -> Option<String> {
        let finished = self.milepost(&["status", id, "--json"]);
        let answer: Value = serde_json::from_str(&finished.stdout).ok()?;
        answer["status"].as_str().map(str::to_owned)
    }

    pub(crate) fn wait_for_status(&self, id: &str, status: &str) {
        wait_for(&format!("{id} to be {status}"), || self.status(id).filter(|found| found == status));
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(&format!("the file {name}"), || self.exists(name).then_some(()));
    }

    /// The types of a task's events, in order.
    pub(crate) fn events(&self, task: &str) -> Vec<String> {
        let events = self.json(&["events", task]);
        let items = events["items"].as_array().unwrap();
        items.iter().map(|event| event["eventType"].as_str().unwrap().to_owned()).collect()
    }
}

impl Finished {
    #[track_caller]
    pub(crate) fn must_exit(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// What was said, wherever.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    #[track_caller]
    pub(crate) fn must_say(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.said().contains(word), "no `{word}` in\n{}", self.said());
        }
        self
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has said this on stderr.
    pub(crate) fn wait_to_say(&self, words: &str) {
        wait_for(&format!("`{words}` on stderr"), || self.stderr().contains(words).then_some(()));
    }

    /// Where its answers go while it runs.
    pub(crate) fn stdout_file(&self) -> &Path {
        &self.stdout
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Finished {
        let deadline = Instant::now() + PATIENCE;
        let status: ExitStatus = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("it does not end; it said\n{}", self.stderr()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // A process that a signal ended has no code; -1 is never expected.
        let code = status.code().unwrap_or(-1);
        Finished { code, stdout: fs::read_to_string(&self.stdout).unwrap(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended already, which is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A plan of tasks whose first stage waits for the file `go`, and says by a file `started-TASK` that it does.
pub(crate) fn gated(plan: &str, tasks: &[&str]) -> String {
    let tasks: String = tasks.iter().map(|task| format!("  - {{ id: {task} }}\n")).collect();
    format!(
        r#"plan: {plan}
stages:
  - name: wait
    run: |
      touch "started-$MILEPOST_TASK"
      while [ ! -e go ]; do sleep 0.02; done
  - name: finish
    run: echo "$MILEPOST_TASK" >> finished
tasks:
{tasks}"#
    )
}

/// A plan of one task, `t`, whose second stage fails until the file `mended` is there.
pub(crate) fn failing(plan: &str) -> String {
    format!(
        r#"plan: {plan}
defaults: {{ retry: {{ max_attempts: 1 }} }}
stages:
  - name: first
    run: echo first >> ran
    rollback: {{ run: echo undo-first >> ran }}
  - name: second
    run: |
      echo second >> ran
      test -e mended || {{ echo "it is broken" >&2; exit 3; }}
    rollback: {{ run: echo undo-second >> ran }}
tasks:
  - {{ id: t, tenant: tenant-7 }}
"#
    )
}
