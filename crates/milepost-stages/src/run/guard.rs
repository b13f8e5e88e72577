//! A command dies with its node, also when the node is killed without a word.
//!
//! One small shell process per node, the guard, holds the read end of a pipe whose only write end is ours. The kernel
//! closes ours when this process ends, however it ends; the guard then kills the process groups of all commands that
//! still run, removes the node's temporary files, and ends itself. It finds the commands by a token that only their
//! environment holds, so starting one costs nothing extra and needs no registration that a crash could come before:
//! a child that is about to become a command keeps a copy of our end of the pipe until it has become one.
//!
//! Why not `PR_SET_PDEATHSIG`: it reaches the shell but not what the shell started, it fires when the starting *thread*
//! ends (a pool's threads do), and setting it takes an `unsafe` hook that also makes every start a full fork.
//!
//! Limits. It needs `/proc`, so Linux. What calls `setsid` is left alone on purpose: that is how a deployment starts
//! something that is to stay. A command that wipes its environment in its *first* process (`exec env -i …`) is not
//! found. A guard that was killed is replaced when the next command starts; until then the running ones have none.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::private_folder;

/// Holds the token in every command's environment. A node started by a command of another node passes its own on.
pub(super) const TOKEN_VARIABLE: &str = "MILEPOST_COMMAND_GUARD";

/// $1 is the token, $2 the node's folder for temporary files.
///
/// Waits for the end of its input, then looks for processes with the token until two looks in a row find none: what
/// forks while being looked for is found by the next one, and so is a command so new that the kernel has closed its
/// end of the pipe but not yet shown its environment. 100 looks bound the wait for what the kernel cannot end.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT
where_is() {
    line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    set -- ${line##*) }
    group=$3 session=$4
}
where_is $$ && home=$session
while read -r _; do :; done
looks=0 quiet=0
while [ $looks -lt 100 ] && [ $quiet -lt 2 ]; do
    found=
    for file in $(grep -lF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${file#/proc/}
        where_is "${pid%/environ}" || continue
        [ "$session" = "$home" ] || continue
        kill -s KILL -- "-$group" 2>/dev/null
        found=1
    done
    if [ -n "$found" ]; then quiet=0; else quiet=$((quiet + 1)); fi
    looks=$((looks + 1))
    sleep 0.1
done
rm -rf -- "$2"
"#;

/// What a command needs from its node's guard.
pub(super) struct Guarded {
    pub(super) token: String,
    /// Private to this node; gone with it.
    pub(super) folder: PathBuf,
}

/// Makes sure that a guard is watching. Called before each command.
pub(super) fn guarded() -> io::Result<Guarded> {
    let mut slot = lock(&GUARD);
    if slot.is_none() {
        *slot = Some(Guard::start()?);
    }
    let guard = slot.as_mut().expect("the slot was just filled");
    guard.keep_watching()?;
    Ok(Guarded { token: guard.token.clone(), folder: guard.folder.clone() })
}

/// The guard of this process. Its pipe stays open for as long as the process lives, because a static is never dropped.
static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

struct Guard {
    /// Holds our end of the pipe as its stdin.
    process: Child,
    token: String,
    folder: PathBuf,
}

impl Guard {
    fn start() -> io::Result<Self> {
        let token = format!("{:016x}{:016x}", random(), random());
        let folder = private_folder("milepost-")?.keep();
        let process = watch(&token, &folder).inspect_err(|_| remove(&folder))?;
        Ok(Self { process, token, folder })
    }

    /// Another one takes over from a guard that somebody killed, also for the commands that already run. Asking costs
    /// a microsecond. Not knowing counts as alive: ending a guard that lives would end every command.
    fn keep_watching(&mut self) -> io::Result<()> {
        if let Ok(Some(_)) = self.process.try_wait() {
            tracing::warn!("the process that ends commands with their node was killed; starting another");
            self.process = watch(&self.token, &self.folder)?;
        }
        Ok(())
    }
}

fn watch(token: &str, folder: &Path) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "milepost-command-guard", token])
        .arg(folder)
        // Nothing of the guard may be mistaken for a command, not even when this node is one of another node's.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .current_dir("/")
        // Not in our group: a Ctrl-C meant for us must not reach it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir(folder) {
        tracing::debug!(%error, folder = %folder.display(), "could not remove a temporary folder");
    }
}

/// The standard library seeds each `RandomState` of a thread differently, from the system's randomness.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held cannot leave the slot half written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
