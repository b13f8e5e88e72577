//! Retries keep their appointments, whatever happens to the node in between.

use std::collections::BTreeMap;

use milepost_core::id::StageName;
use milepost_core::retry::{RetryPolicy, Strategy, seed_of};
use milepost_core::task::{Event, TaskStatus};
use milepost_core::time::{Millis, Timestamp};

use crate::history::{History, TaskHistory};
use crate::kills::{run_and_kill, wait_for_the_commands_to_die};
use crate::seed::Dice;
use crate::support::World;

const TASKS: usize = 12;
const STAGES: [&str; 3] = ["first", "second", "third"];
const KILLS: usize = 15;
/// The attempt with which a task's stages succeed at last; every third task never does.
const SUCCEEDS_AT: u32 = 4;

/// As in the plan below.
fn policy() -> RetryPolicy {
    RetryPolicy {
        max_attempts: 5,
        strategy: Strategy::Exponential,
        base: Millis::new(200),
        multiplier: 1.5,
        max: Some(Millis::new(700)),
        jitter: true,
        fatal_exit_codes: Vec::new(),
        guard: None,
    }
}

fn plan(id: &str) -> String {
    let mut text = format!(
        "plan: {id}\nmax_concurrency: {TASKS}\ndefaults: {{ retry: {{ max_attempts: 5, strategy: exponential, base: \
         200ms, multiplier: 1.5, max: 700ms, jitter: true }} }}\nstages:\n"
    );
    for stage in STAGES {
        text.push_str(&format!(
            r#"  - name: {stage}
    env: {{ SUCCEEDS_AT: "{{{{ input.succeeds_at }}}}" }}
    run: |
      printf '%s %s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" "$(date +%s%3N)" >> "lines-$MILEPOST_TASK"
      sleep 0.0$MILEPOST_ATTEMPT
      [ "$MILEPOST_ATTEMPT" -ge "$SUCCEEDS_AT" ]
"#
        ));
    }
    text.push_str("tasks:\n");
    for task in 1..=TASKS {
        let succeeds_at = if is_doomed(task) { 99 } else { SUCCEEDS_AT };
        text.push_str(&format!("  - {{ id: t-{task}, input: {{ succeeds_at: {succeeds_at} }} }}\n"));
    }
    text
}

fn is_doomed(task: usize) -> bool {
    task.is_multiple_of(3)
}

#[test]
fn a_retry_waits_for_its_due_time_across_kills() {
    let mut dice = Dice::of("a_retry_waits_for_its_due_time_across_kills");
    let world = World::new();
    let id = format!("retries-{}", std::process::id());
    world.file("p.yaml", &plan(&id));
    let mut kills = 0;
    // Time passes for retries also while nobody runs them, so a slow machine has fewer chances to kill.
    while kills < KILLS && run_and_kill(&world, &mut dice, 300) {
        kills += 1;
        wait_for_the_commands_to_die(&id);
        if let Some(history) = History::of(&world, &id) {
            history.check(TASKS);
            for task in history.tasks.values() {
                check_retries(&world, task);
            }
        }
    }
    // Some tasks never succeed.
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    let history = History::of(&world, &id).unwrap();
    history.check(TASKS);
    let mut retries = 0;
    for number in 1..=TASKS {
        let task = &history.tasks[&format!("t-{number}")];
        retries += check_retries(&world, task);
        let (status, attempts) = if is_doomed(number) { (TaskStatus::Failed, 5) } else { (TaskStatus::Completed, 4) };
        assert_eq!(task.row.status, status, "t-{number}");
        assert_eq!(task.starts("first").last().unwrap().0, attempts, "t-{number}");
    }
    // Each of these was scheduled once, however often its node died.
    let (doomed, others) = (TASKS / 3, TASKS - TASKS / 3);
    assert_eq!(retries, doomed * 4 + others * STAGES.len() * 3);
    eprintln!("{kills} kills, {retries} retries");
    assert!(kills >= KILLS / 3, "{kills} kills are too few");
}

/// Answers how many retries were scheduled.
fn check_retries(world: &World, task: &TaskHistory) -> usize {
    let id = task.row.key.id.as_str();
    let mut due = BTreeMap::new();
    for event in &task.events {
        let Event::RetryScheduled { stage, attempt, delay, .. } = event.record.event() else { continue };
        assert!(*attempt <= policy().max_attempts, "{id} tries {stage} too often");
        assert_eq!(*delay, policy().delay(seed_of(id), stage, attempt - 1), "{id} waits for another time at {stage}");
        let again = due.insert((stage.clone(), *attempt), event.record.at() + *delay);
        assert!(again.is_none(), "{id} has two appointments for attempt {attempt} of {stage}");
    }
    check_starts_in_the_log(task, &due);
    check_starts_of_commands(world, id, &due);
    due.len()
}

type Due = BTreeMap<(StageName, u32), Timestamp>;

fn check_starts_in_the_log(task: &TaskHistory, due: &Due) {
    let id = &task.row.key.id;
    for name in STAGES {
        let stage = StageName::parse(name).unwrap();
        let mut before = 0;
        for (attempt, at) in task.starts(name) {
            assert!(attempt == before || attempt == before + 1, "{name} of {id} goes from {before} to {attempt}");
            before = attempt;
            if attempt > 1 {
                assert!(at >= due[&(stage.clone(), attempt)], "attempt {attempt} of {name} of {id} was early");
            }
        }
    }
}

/// The log may be kinder than the truth: the commands say themselves when they ran.
fn check_starts_of_commands(world: &World, id: &str, due: &Due) {
    for line in world.read(&format!("lines-{id}")).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (stage, attempt) = (StageName::parse(words[0]).unwrap(), words[1].parse::<u32>().unwrap());
        let at = Timestamp::from_millis(words[2].parse().unwrap());
        if attempt > 1 {
            assert!(at >= due[&(stage.clone(), attempt)], "attempt {attempt} of {stage} of {id} ran early");
        }
    }
}
