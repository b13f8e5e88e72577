//! A node that may not have more memory, and dies of it.

use std::io::{Read, Write};
use std::net::TcpStream;

use milepost_core::task::PlanStatus;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::history::History;
use crate::kills::wait_for_the_commands_to_die;
use crate::served::Served;
use crate::support::{PATIENCE, Running, World};
use crate::witness::{Witness, repeats};

const STAGES: [&str; 3] = ["a", "b", "c"];
/// Tasks that run through, and tasks whose stage b waits for the file `go`.
const DONE: usize = 5;
const HELD: usize = 5;
/// Plenty for all that a node does beside reading a plan of this size, which takes many times as much.
const MORE_MEMORY: u64 = 16 << 20;
const LARGE_PLAN: usize = 8 << 20;
const TOO_LARGE: usize = (16 << 20) + 1;

/// A figure of `/proc/PID/status` that is an amount of memory, in bytes.
pub(crate) fn memory(run: &Running, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn plan(id: &str) -> String {
    let mut text = format!("plan: {id}\nmax_concurrency: {}\nstages:\n", HELD + 1);
    for stage in STAGES {
        let line = r#"echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK""#;
        text.push_str(&format!("  - name: {stage}\n    run: |\n      {line}\n"));
        if stage == "b" {
            let hold = r#"touch "held-$MILEPOST_TASK"; while [ ! -e go ]; do sleep 0.02; done"#;
            text.push_str(&format!("      case $MILEPOST_TASK in held-*) {hold};; esac\n"));
        }
    }
    text.push_str("tasks:\n");
    (1..=DONE).for_each(|task| text.push_str(&format!("  - {{ id: done-{task} }}\n")));
    (1..=HELD).for_each(|task| text.push_str(&format!("  - {{ id: held-{task} }}\n")));
    text
}

fn large_plan() -> String {
    let mut text = "plan: large\nstages:\n  - { name: a, uses: noop }\ntasks:\n".to_owned();
    for task in 1.. {
        if text.len() >= LARGE_PLAN {
            break;
        }
        text.push_str(&format!("  - {{ id: t-{task} }}\n"));
    }
    text
}

fn leave_little_memory(run: &Running) {
    let limit = Rlimit { current: Some(memory(run, "VmData") + MORE_MEMORY), maximum: None };
    let pid = Pid::from_raw(i32::try_from(run.pid()).unwrap());
    prlimit(pid, Resource::Data, limit).unwrap();
}

/// What a server answers to a plan of this length. Nothing: it died over it.
fn answer_to(served: &Served, length: usize, plan: &str) -> String {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /api/v1/plans HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/yaml\r\n\
         Content-Length: {length}\r\n\r\n",
        served.address
    );
    let mut answer = String::new();
    // A server that dies takes the connection with it, and which of these notices is chance.
    let _ = stream.write_all((head + plan).as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    answer
}

#[test]
fn a_node_that_runs_out_of_memory_loses_no_completed_stage() {
    let world = World::new();
    // Only this test's, so that its commands can be told from others'.
    let id = format!("memory-{}", std::process::id());
    world.file("p.yaml", &plan(&id));
    let served = world.serve(&["--allow-commands"]);
    world.good(&["submit", "p.yaml", "--server", &served.url]);
    (1..=DONE).for_each(|task| world.wait_for_status(&format!("done-{task}"), "COMPLETED"));
    (1..=HELD).for_each(|task| world.wait_for_file(&format!("held-held-{task}")));

    leave_little_memory(&served.running);
    let refused = answer_to(&served, TOO_LARGE, "");
    assert!(refused.starts_with("HTTP/1.1 413 "), "what is too large for any node takes no memory: {refused}");
    assert_eq!(served.status("/readyz"), 200);
    let large = large_plan();
    assert_eq!(answer_to(&served, large.len(), &large), "", "it had memory enough");
    let died = served.running.end().must_exit(-1);
    assert!(died.stderr.contains("memory allocation of "), "it died of something else:\n{}", died.stderr);
    wait_for_the_commands_to_die(&id);

    let mut witness = Witness::default();
    let history = History::of(&world, &id).unwrap();
    history.check(DONE + HELD);
    witness.look(&world, &history);
    assert_eq!(witness.completed(), DONE * STAGES.len() + HELD, "what was completed is on the disk");
    assert!(History::of(&world, "large").is_none(), "what nobody was told of is not half there");

    world.file("go", "");
    let served = world.serve(&["--allow-commands"]);
    world.wait_for_status(&id, "COMPLETED");
    served.stop();
    let history = History::of(&world, &id).unwrap();
    history.check(DONE + HELD);
    witness.look(&world, &history);
    assert_eq!(history.plan.status, PlanStatus::Completed);
    assert_eq!(witness.completed(), (DONE + HELD) * STAGES.len());
    for (id, task) in &history.tasks {
        for stage in STAGES {
            let cut_off = usize::from(id.starts_with("held-") && stage == "b");
            assert_eq!(repeats(&world, task, stage), cut_off, "only what was cut off runs again: {stage} of {id}");
        }
    }
}
