//! `kill -9` in the middle of copies, and the same command again.

use std::thread::sleep;

use rustix::process::Signal;

use crate::seed::Dice;
use crate::source::{self, Source};
use crate::support::{World, wait_for};
use crate::target::{Target, Watcher, is_whole};

const KILLS: usize = 20;
const TABLES: usize = 6;
const ROWS: u32 = 4000;

/// A plan of its own for each round, which replaces what the one before has copied.
fn write_plan(world: &World, target: &Target, round: u32) {
    let plan = format!("round-{round}");
    let resume = if round.is_multiple_of(2) { "chunk" } else { "table" };
    let init = ["sync", "init", source::URL, target.url(), "--plan", &plan, "--output", "p.yaml", "--force", "--quiet"];
    let how = ["--if-exists", "drop", "--resume", resume, "--concurrency", "3", "--batch-size", "250"];
    world.good(&[&init[..], &how[..]].concat());
    // Slow enough to be killed in the middle of a table.
    let slow = world.read("p.yaml").replace("# rows_per_second: 10000", "rows_per_second: 8000");
    assert!(slow.contains("\n      rows_per_second: 8000"), "{slow}");
    world.file("p.yaml", &slow);
}

/// At any moment of the first `window` milliseconds of work. False: it came to its end first.
fn run_and_kill(world: &World, dice: &mut Dice, window: u64) -> bool {
    let mut run = world.start(&["run", "p.yaml"]);
    if dice.below(5) == 0 {
        // Also while it opens both sides.
        sleep(dice.millis(0..150));
    } else {
        wait_for("it to begin", || (run.stderr().contains("at once") || !run.is_running()).then_some(()));
        sleep(dice.millis(0..window));
    }
    if run.is_running() {
        run.signal(Signal::KILL);
    }
    let ended = run.end();
    assert!(ended.code == -1 || ended.code == 0, "{}", ended.said());
    ended.code == -1
}

#[test]
fn a_sync_killed_at_random_moments_ends_with_every_table_equal_and_shows_none_half_copied() {
    let test = "a_sync_killed_at_random_moments_ends_with_every_table_equal_and_shows_none_half_copied";
    let mut dice = Dice::of(test);
    for target in Target::all(test) {
        let world = World::new();
        let target = target(&world);
        let source = Source::new(&world, (0..TABLES).map(|table| format!("t{table}")).collect(), ROWS);
        let watcher = Watcher::start(&target, source.tables(), ROWS.into());
        let (mut kills, mut round) = (0, 1);
        // Later and later, so that a round ends also where everything takes longer.
        let mut window = 500;
        write_plan(&world, &target, round);
        while kills < KILLS {
            if run_and_kill(&world, &mut dice, window) {
                kills += 1;
                window += 200;
                for table in source.tables() {
                    let seen = target.see(table);
                    assert!(seen.as_ref().is_none_or(|seen| is_whole(seen, ROWS.into())), "{table}: {seen:?}");
                }
            } else {
                target.must_equal(&source);
                (round, window) = (round + 1, 500);
                source.rewrite(round);
                write_plan(&world, &target, round);
            }
        }
        world.good(&["run", "p.yaml"]);
        target.must_equal(&source);
        let looks = watcher.end();
        eprintln!("{}: {KILLS} kills in {round} rounds, looked at {looks} times meanwhile", target.name());
        assert!(looks > KILLS, "nobody looked");
    }
}
