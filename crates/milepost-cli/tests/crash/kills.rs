//! `kill -9` at any moment, and the same command again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;
use rustix::process::Signal;

use crate::history::History;
use crate::seed::Dice;
use crate::support::{World, wait_for};
use crate::witness::{Witness, repeats};

/// Starts the plan, and kills it at a moment between its birth and some way into its work. False: it had ended before.
pub(crate) fn run_and_kill(world: &World, dice: &mut Dice, window: u64) -> bool {
    let mut run = world.start(&["run", "p.yaml"]);
    if dice.below(4) == 0 {
        // Also while it opens the store, submits and claims.
        sleep(dice.millis(0..150));
    } else {
        wait_for("it to begin", || (run.stderr().contains("at once") || !run.is_running()).then_some(()));
        sleep(dice.millis(0..window));
    }
    if !run.is_running() {
        return false;
    }
    run.signal(Signal::KILL);
    // It may still have ended in between.
    run.end().code == -1
}

/// A command dies with its node. Answers how long after it.
pub(crate) fn wait_for_the_commands_to_die(plan: &str) -> Duration {
    let killed = Instant::now();
    wait_for("the commands of a killed node to end", || (!lives_a_command_of(plan)).then(|| killed.elapsed()))
}

fn lives_a_command_of(plan: &str) -> bool {
    let variable = format!("MILEPOST_PLAN={plan}");
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        // A zombie's environment is empty, and what is gone meanwhile cannot be read.
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    })
}

#[test]
fn a_run_killed_at_random_moments_loses_no_completed_stage() {
    const TASKS: usize = 100;
    const STAGES: usize = 10;
    const KILLS: usize = 50;
    let mut dice = Dice::of("a_run_killed_at_random_moments_loses_no_completed_stage");
    let world = World::new();
    // Only this test's, so that its commands can be told from others'.
    let plan = format!("marks-{}", std::process::id());
    let mut text = format!("plan: {plan}\nmax_concurrency: 10\nstages:\n");
    for stage in 1..=STAGES {
        text.push_str(&format!(
            r#"  - name: s{stage}
    run: |
      sleep 0.05
      printf '%s %s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" "$$" >> "lines-$MILEPOST_TASK"
      sleep 0.03
"#
        ));
    }
    text.push_str("tasks:\n");
    (1..=TASKS).for_each(|task| text.push_str(&format!("  - {{ id: t-{task} }}\n")));
    world.file("p.yaml", &text);

    let mut witness = Witness::default();
    let mut slowest_death = Duration::ZERO;
    for _ in 0..KILLS {
        assert!(run_and_kill(&world, &mut dice, 400), "it ended too soon; give it more to do");
        slowest_death = slowest_death.max(wait_for_the_commands_to_die(&plan));
        if let Some(history) = History::of(&world, &plan) {
            history.check(TASKS);
            witness.look(&world, &history);
        }
    }
    let before_the_last = witness.completed();
    assert!(before_the_last > 0, "the kills left no time for work");

    world.good(&["run", "p.yaml"]);
    let history = History::of(&world, &plan).unwrap();
    history.check(TASKS);
    witness.look(&world, &history);
    assert_eq!(history.plan.status, PlanStatus::Completed);
    assert_eq!(history.plan.counts.completed, TASKS as u64);
    assert_eq!(witness.completed(), TASKS * STAGES);
    let repeated: usize = history
        .tasks
        .values()
        .flat_map(|task| (1..=STAGES).map(|stage| repeats(&world, task, &format!("s{stage}"))))
        .sum();
    eprintln!(
        "{KILLS} kills, {before_the_last} of {} stages done between them, {repeated} lines written again; commands \
         outlived their node by {slowest_death:?} at most",
        TASKS * STAGES
    );
}
