//! A command dies with its node: here a node is another run of this very test binary, and it is killed for real.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use milepost_engine::stage::{StageCall, StageKind};
use milepost_stages::RunKind;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Seen, eventually, is_gone, kill, pids, script};

/// Set for the run of this binary that plays the node.
const SCRIPT: &str = "TEST_NODE_SCRIPT";
const PIDS: &str = "TEST_NODE_PIDS";
/// Between scripts that the node runs at once.
const TOGETHER: &str = "\n--- together with ---\n";
/// Opens a script that the node starts only when a file appears beside the one for process ids.
const WHEN_TOLD: &str = "# when told\n";

#[tokio::test]
#[ignore = "not a test: the node that the tests of this file kill"]
async fn node() {
    let (Ok(texts), Ok(file)) = (std::env::var(SCRIPT), std::env::var(PIDS)) else { return };
    let seen = Arc::new(Seen::default());
    let mut commands = JoinSet::new();
    for text in texts.split(TOGETHER) {
        let call = StageCall { with: json!({"env": {"PIDS": file}}), ..script(text, &seen) };
        let go = text.starts_with(WHEN_TOLD).then(|| Path::new(&file).with_extension("go"));
        commands.spawn(async move {
            if let Some(go) = go {
                eventually("being told to go on", || go.exists().then_some(())).await;
            }
            RunKind::new().run(call).await
        });
    }
    commands.join_all().await;
}

struct Node {
    process: Child,
    pids: PathBuf,
    folder: tempfile::TempDir,
}

impl Node {
    fn running(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node_death::node", "--ignored", "--nocapture"])
            .env(SCRIPT, text)
            .env(PIDS, &pids)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, pids, folder }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn temporary_folders(&self) -> usize {
        let entries = |path: &Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        entries(self.folder.path()).filter(|name| name.to_string_lossy().starts_with("milepost-")).count()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn dies(text: &str, count: usize) {
    let mut node = Node::running(text);
    let pids = pids(&node.pids, count).await;
    assert!(pids.iter().all(|pid| !is_gone(*pid)), "{pids:?} should be running");
    node.kill();
    eventually("the end of the command", || pids.iter().all(|pid| is_gone(*pid)).then_some(())).await;
    eventually("removing its files", || (node.temporary_folders() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_command_dies_with_its_node() {
    dies("echo $$ >$PIDS; sleep 1000", 1).await;
    dies("echo $$ >$PIDS; exec sleep 1000", 1).await;
}

#[tokio::test]
async fn what_a_command_started_dies_with_its_node() {
    dies("sleep 1000 & echo $$ $! >$PIDS; wait", 2).await;
    // Not listening to TERM, two levels down, without our variables, and in a group of its own by job control.
    dies("trap '' TERM; (env -i sleep 1000 & echo $! >>$PIDS; wait) & echo $$ $! >>$PIDS; wait", 3).await;
    dies("set -m; sleep 1000 & echo $$ $! >$PIDS; wait", 2).await;
}

#[tokio::test]
async fn what_left_the_session_outlives_the_node() {
    let mut node = Node::running("echo $$ >$PIDS; setsid sh -c 'echo $$ >>$PIDS; exec sleep 1000' & wait");
    let pids = pids(&node.pids, 2).await;
    node.kill();
    eventually("the end of the command", || is_gone(pids[0]).then_some(())).await;
    eventually("the end of the guard", || (node.temporary_folders() == 0).then_some(())).await;
    assert!(!is_gone(pids[1]));
    kill(pids[1]);
}

#[tokio::test]
async fn commands_that_were_just_starting_die_with_their_node() {
    let many = vec!["echo $$ >>$PIDS; sleep 1000"; 40].join(TOGETHER);
    // From right after the first command to somewhere among the last.
    for started in [1, 2, 5, 10, 20, 35] {
        let mut node = Node::running(&many);
        eventually("starting some", || {
            let lines = std::fs::read_to_string(&node.pids).unwrap_or_default().lines().count();
            (lines >= started).then_some(())
        })
        .await;
        node.kill();
        // The guard's last act; after it, nothing may be left that was given the file.
        eventually("the end of the guard", || (node.temporary_folders() == 0).then_some(())).await;
        let variable = format!("PIDS={}", node.pids.display());
        let left = processes(|process| environment(process).contains(&variable));
        assert_eq!(left, Vec::<u32>::new(), "after {started} had started");
    }
}

#[tokio::test]
async fn a_guard_that_was_killed_is_replaced_by_the_next_command() {
    let one = "echo $$ >>$PIDS; sleep 1000";
    let mut node = Node::running(&[one, TOGETHER, WHEN_TOLD, one].concat());
    pids(&node.pids, 1).await;
    let parent = format!("PPid:\t{}\n", node.process.id());
    let guards = processes(|process| {
        let of_node = std::fs::read_to_string(process.join("status")).unwrap_or_default().contains(&parent);
        of_node && std::fs::read_to_string(process.join("cmdline")).unwrap_or_default().contains("command-guard")
    });
    assert_eq!(guards.len(), 1);
    kill(guards[0]);
    eventually("the end of the first guard", || is_gone(guards[0]).then_some(())).await;
    std::fs::write(node.pids.with_extension("go"), "").unwrap();
    let both = pids(&node.pids, 2).await;
    node.kill();
    eventually("the end of both commands", || both.iter().all(|pid| is_gone(*pid)).then_some(())).await;
}

/// The ids of all processes whose folder in `/proc` shows what is looked for.
fn processes(looked_for: impl Fn(&Path) -> bool) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    all.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (looked_for(&entry.path()) && !is_gone(pid)).then_some(pid)
    })
    .collect()
}

fn environment(process: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(process.join("environ")).unwrap_or_default()).into_owned()
}
