//! Whole clusters under one seed after the other. `MILEPOST_SIM_SCHEDULES=N` plays more or fewer, and
//! `MILEPOST_SIM_FROM=SEED` begins elsewhere.

#[cfg(feature = "planted")]
use milepost_sim::Judge;
#[cfg(not(feature = "planted"))]
use milepost_sim::Search;
use milepost_sim::{Schedule, Trace, quiet_panics};

#[cfg(not(feature = "planted"))]
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |value| value.parse().expect("a number"))
}

#[cfg(not(feature = "planted"))]
#[test]
fn whatever_becomes_of_nodes_network_and_store_no_schedule_breaks_a_rule() {
    let (from, count) = (number("MILEPOST_SIM_FROM", 1), number("MILEPOST_SIM_SCHEDULES", 50_000));
    let summary = Search { server: None, from, count, threads: 2, failures: 5 }.run();
    assert!(summary.failures.is_empty(), "{summary}");
    eprintln!("{summary}");
}

#[cfg(not(feature = "planted"))]
#[test]
fn the_same_seed_gives_the_same_trace_to_the_letter() {
    quiet_panics();
    for seed in 1..=number("MILEPOST_SIM_TRACES", 1_000) {
        let (one, other) = (Schedule::generate(seed).play(Trace::on()), Schedule::generate(seed).play(Trace::on()));
        assert!(!one.trace.text().is_empty());
        assert_eq!(one.trace.text(), other.trace.text(), "seed {seed}");
    }
}

#[cfg(feature = "planted")]
#[test]
fn every_planted_bug_is_found_within_ten_thousand_schedules() {
    quiet_panics();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let missed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(bug) = milepost_sim::BUGS.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    match milepost_sim::find(bug, 10_000, Judge::All) {
                        Some(found) => eprintln!("| {bug} | {} | {} |", found.schedules, found.violation),
                        None => missed.lock().expect("nobody panics with it").push(*bug),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("nobody panics with it");
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Who judges what happens on a server has only its log, and finds with that what the other judge finds.
#[cfg(feature = "planted")]
#[test]
fn what_is_found_on_a_store_that_stands_still_is_found_by_the_log_alone() {
    quiet_panics();
    for seed in 1..=60 {
        let violation = Schedule::generate(seed).play_by_log(Trace::default()).violation;
        assert_eq!(violation, None, "seed {seed}, in which there is nothing wrong");
    }
    for bug in [
        "a commit minds no version",
        "a lease is given out twice",
        "a paused plan goes on",
        "a plan ends with its first task",
        "a plan never ends",
        "a retry forgets the checkpoint",
        "a slot is not counted",
        "a stage starts before its commit",
        "a tenant is not locked",
        "a tenant stays locked",
        "an unanswered commit counts as done",
    ] {
        assert!(milepost_sim::find(bug, 100, Judge::Log).is_some(), "{bug}");
    }
}

/// Leaves out all that has nothing to do with it.
#[cfg(feature = "planted")]
#[test]
fn the_shortest_schedule_that_fails_alike_is_found() {
    quiet_panics();
    milepost_core::planted::plant("a tenant stays locked");
    let seed = (1..1_000).find(|seed| Schedule::generate(*seed).play(Trace::default()).violation.is_some());
    let schedule = Schedule::generate(seed.expect("a seed that finds it"));
    let shortest = schedule.shortest().expect("it fails");
    assert!(shortest.play(Trace::default()).violation.is_some());
    assert!(shortest.steps.len() <= schedule.steps.len());
    assert!(shortest.steps.iter().all(|step| !step.act.is_fault()), "no fault is needed for it: {shortest}");
    milepost_core::planted::plant("");
}
