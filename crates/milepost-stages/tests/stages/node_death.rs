//! A command dies with its node: here a node is another run of this very test binary, and it is killed for real.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use milepost_engine::stage::{StageCall, StageKind};
use milepost_stages::RunKind;
use serde_json::json;

use crate::support::{Seen, eventually, is_gone, pids, script};

/// Set for the run of this binary that plays the node.
const SCRIPT: &str = "TEST_NODE_SCRIPT";
const PIDS: &str = "TEST_NODE_PIDS";

#[tokio::test]
#[ignore = "not a test: the node that the tests of this file kill"]
async fn node() {
    let (Ok(text), Ok(file)) = (std::env::var(SCRIPT), std::env::var(PIDS)) else { return };
    let seen = Arc::new(Seen::default());
    RunKind::new().run(StageCall { with: json!({"env": {"PIDS": file}}), ..script(&text, &seen) }).await;
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
    let pids = pids(&node.pids.clone(), count).await;
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
    let pids = pids(&node.pids.clone(), 2).await;
    node.kill();
    eventually("the end of the command", || is_gone(pids[0]).then_some(())).await;
    eventually("the end of the guard", || (node.temporary_folders() == 0).then_some(())).await;
    assert!(!is_gone(pids[1]));
    let left = rustix::process::Pid::from_raw(i32::try_from(pids[1]).unwrap()).unwrap();
    rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
}
