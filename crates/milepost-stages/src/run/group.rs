//! The processes of one command, and ending all of them.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use super::streams::Streams;

/// What TERM leaves a command to end by itself, before KILL.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long killed processes may take to be gone; the kernel needs microseconds, a process stuck in a device longer.
pub(super) const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Looks come soon at first, as most processes end at once, then less often.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const SLOWEST_LOOK: Duration = Duration::from_millis(100);

/// A process group that lives no longer than this value.
pub(super) struct Group {
    /// None once all of it is gone, when the number may already mean somebody else.
    id: Option<Pid>,
}

impl Group {
    /// Of a child that was started as the leader of a group of its own.
    pub(super) fn led_by(child: &Child) -> Self {
        Self { id: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) }
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The leader has been waited for: lets what is left of the group end by itself until `patience` is over, then
    /// ends it. Comes back when nothing of it is left.
    pub(super) async fn end(&mut self, patience: Option<Instant>, streams: &mut Streams) {
        if let Some(until) = patience {
            self.gone_by(until, streams).await;
        }
        self.kill();
        if !self.gone_by(Instant::now() + GONE_WITHIN, streams).await {
            tracing::warn!(group = ?self.id, "processes of a command are still there after KILL");
        }
        self.id = None;
    }

    async fn gone_by(&mut self, until: Instant, streams: &mut Streams) -> bool {
        let mut wait = FIRST_LOOK;
        while !self.is_gone() {
            if Instant::now() >= until {
                return false;
            }
            let next = (Instant::now() + wait).min(until);
            wait = (wait * 2).min(SLOWEST_LOOK);
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(next) => break,
                    () = streams.pass_on() => {}
                }
            }
        }
        self.id = None;
        true
    }

    fn is_gone(&self) -> bool {
        let Some(id) = self.id else { return true };
        // Where this process is the one that orphans fall to (as a container's first process), it has to wait for
        // them, or they stay as zombies. Elsewhere they are not its children, and this says so at once.
        while let Ok(Some(_)) = waitpgid(id, WaitOptions::NOHANG) {}
        test_kill_process_group(id) == Err(Errno::SRCH) || !has_living_members(id)
    }

    fn signal(&self, signal: Signal) {
        let Some(id) = self.id else { return };
        match kill_process_group(id, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, group = ?id, ?signal, "could not signal a command's processes"),
        }
    }
}

impl Drop for Group {
    /// An attempt that is dropped half way takes its processes with it.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether anything of the group can still run. Ended processes stay in it until somebody has waited for them, and the
/// one whose duty that is may take its time.
fn has_living_members(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes.flatten().any(|process| {
        let numbered = process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        numbered && std::fs::read(process.path().join("stat")).is_ok_and(|stat| lives_in(group, &stat))
    })
}

/// From a line of `/proc/<pid>/stat`: `pid (name) state parent group …`, where the name may hold anything.
fn lives_in(group: Pid, stat: &[u8]) -> bool {
    let after_name = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    let mut fields = stat[after_name..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (state, of_group) = (fields.next(), fields.nth(1));
    of_group == Some(group.to_string().as_bytes()) && !matches!(state, Some(b"Z" | b"X"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_no_living_member_and_a_name_cannot_pose_as_one() {
        let group = Pid::from_raw(42).unwrap();
        assert!(lives_in(group, b"50 (sleep) S 1 42 7 0 -1"));
        assert!(!lives_in(group, b"50 (sleep) Z 1 42 7 0 -1"));
        assert!(!lives_in(group, b"50 (sleep) S 1 43 7 0 -1"));
        assert!(!lives_in(group, b"50 (a) S 1 42 7) S 1 43 7 0 -1"));
        assert!(lives_in(group, b"50 (a\n) Z 1 43 7) S 1 42 7 0 -1"));
        assert!(!lives_in(group, b""));
    }
}
