//! A wall clock that jumps by an hour or a day while the program runs: nothing is due early, and nothing late.

use std::time::{Duration, SystemTime};

use milepost_core::task::{Event, TaskStatus};
use milepost_core::time::Timestamp;

use crate::history::History;
use crate::support::{Running, World, wait_for};
use crate::wrong_clock::{JUMPS, WrongClock};

const TASKS: usize = 6;
const DELAY: i64 = 800;
const TIMEOUT: i64 = 1_500;
/// A busy machine may be that late; a clock that counted would be late, or early, by an hour.
const LATE: i64 = 10_000;

/// The first stage succeeds with its fourth attempt; the second hangs, and fails because of that. Each attempt writes down
/// the right time.
fn plan() -> String {
    let tasks: String = (1..=TASKS).map(|task| format!("  - {{ id: t-{task} }}\n")).collect();
    let line =
        r#"printf '%s %s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" "$(date +%s%3N)" >> "lines-$MILEPOST_TASK""#;
    format!(
        r#"plan: p
max_concurrency: {TASKS}
stages:
  - name: retried
    retry: {{ max_attempts: 5, strategy: fixed, base: {DELAY}ms, jitter: false }}
    timeout: 20s
    run: |
      {line}
      [ "$MILEPOST_ATTEMPT" -ge 4 ]
  - name: hangs
    retry: {{ max_attempts: 1 }}
    timeout: {TIMEOUT}ms
    run: |
      {line}
      sleep 60
tasks:
{tasks}"#
    )
}

fn now() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

fn jump_until_it_ends(clock: &WrongClock, run: &mut Running) {
    let mut jumps = JUMPS.iter().cycle();
    wait_for("the run to end", || {
        clock.jump_to(*jumps.next().unwrap());
        // Long enough for something to happen by each of them.
        std::thread::sleep(Duration::from_millis(150));
        (!run.is_running()).then_some(())
    });
}

#[test]
fn a_wall_clock_that_jumps_makes_no_retry_and_no_timeout_early_or_late() {
    let world = World::new();
    world.file("p.yaml", &plan());
    let begun = now();
    let mut command = world.command(&["run", "p.yaml"]);
    let clock = WrongClock::of(&world, "clock", &mut command);
    let mut run = world.start_command(command);
    world.wait_for_file("lines-t-1");
    jump_until_it_ends(&clock, &mut run);
    run.end().must_exit(1);
    let ended = now();
    let history = History::of(&world, "p").unwrap();
    history.check(TASKS);
    for (id, task) in &history.tasks {
        assert_eq!(task.row.status, TaskStatus::Failed, "{id}");
        let mut starts = Vec::new();
        for line in world.read(&format!("lines-{id}")).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            starts.push((words[0].to_owned(), words[2].parse::<i64>().unwrap()));
        }
        let stages: Vec<&str> = starts.iter().map(|(stage, _)| stage.as_str()).collect();
        assert_eq!(stages, ["retried", "retried", "retried", "retried", "hangs"], "{id}");
        for pair in starts[..4].windows(2) {
            let waited = pair[1].1 - pair[0].1;
            assert!((DELAY..DELAY + LATE).contains(&waited), "a retry of {id} came after {waited} ms");
        }
        // What the log says is the time at which it happened, all in one order.
        let at = |event: &milepost_store::StoredEvent| event.record.at();
        assert!(task.events.is_sorted_by_key(at), "times in the log of {id} go back");
        let (first, last) = (at(&task.events[0]), at(task.events.last().unwrap()));
        let hour = 3_600_000;
        assert!(first > Timestamp::from_millis(begun - hour) && last < Timestamp::from_millis(ended + hour), "{id}");
        let failed = task.events.iter().find(
            |event| matches!(event.record.event(), Event::StageFailed { stage, .. } if stage.as_str() == "hangs"),
        );
        let started = task.starts("hangs")[0].1;
        let hung = at(failed.unwrap()).as_millis() - started.as_millis();
        assert!((TIMEOUT..TIMEOUT + LATE).contains(&hung), "{id} was timed out after {hung} ms");
    }
}
