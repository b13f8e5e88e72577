//! When a node looks for work: no task waits for a word that nobody says.

use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::PlanCommand;
use milepost_core::task::{By, PlanStatus, StageStatus, TaskStatus};
use milepost_engine::stage::Outcome;
use milepost_engine::{Options, Registry, Verb};
use milepost_store::{PlanChange, Resubmit, Start};
use tokio::time::Instant;

use crate::support::{Cluster, DAWN, Gate, Journal, Member, kind, of_task, plan, plan_id, stage};

const A_MINUTE: Duration = Duration::from_secs(62);

fn registry(gate: &Gate, journal: &Journal) -> Registry {
    let fails = kind(|_| async { Outcome::Failure(Failure::retryable(ErrorType::Unknown, "no")) });
    Registry::new().with("gate", gate.kind()).with("noop", journal.kind()).with("fails", fails)
}

/// So that only a word makes it look.
fn never_sweeps(options: &mut Options) {
    options.sweep = Duration::from_secs(24 * 3600);
}

/// As when whoever asked for it has given up, or died, before it arrived.
async fn change_behind_its_back(member: &Member, plan: &str, command: PlanCommand) {
    let change = PlanChange { plan: plan_id(plan), command, by: By::new("tester"), expected: None, now: DAWN };
    member.node.engine.store().change_plan(change).await.expect("a plan that can be changed so");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_in_being_taken_on_leaves_its_slot_to_the_next() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node_with("one", &registry, never_sweeps);
    one.node
        .submit(
            "{plan: p, max_concurrency: 1, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: fails, needs: [], retry: {max_attempts: 1}}], tasks: [
                {id: first, priority: 1, stages: [{name: x, uses: noop, rollback: {uses: noop}}, {name: y, uses: fails, retry: {max_attempts: 1}}]},
                {id: second}]}",
        )
        .await;
    one.node.until_status("first", TaskStatus::Failed).await;
    one.node.until("second", |task| stage(task, "b") == StageStatus::Failed).await;
    one.node.does(of_task("first"), Verb::Rollback).await;
    let two = cluster.node_with("two", &registry, never_sweeps);
    one.cut();
    // Nobody is left to end `a`, so `second` has failed as soon as it is looked at, and `first` can be undone.
    two.sees("first", |task| task.status() == TaskStatus::RolledBack).await;
    assert_eq!(two.node.status("second").await, TaskStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_sweep_cancels_leaves_its_tenant_to_the_next() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let one = cluster.node("one", &registry(&gate, &journal));
    let waits = "{plan: p, stages: [{name: s, uses: fails, retry: {max_attempts: 2, base: 10m, max: 1h}}], \
                 tasks: [{id: a, tenant: red}]}";
    one.node.submit(waits).await;
    one.node.until("a", |task| stage(task, "s") == StageStatus::RetryWait).await;
    one.node.submit("{plan: q, stages: [{name: s, uses: noop}], tasks: [{id: b, tenant: red}]}").await;
    change_behind_its_back(&one, "p", PlanCommand::Cancel).await;
    let begun = Instant::now();
    one.sees("b", |task| task.status() == TaskStatus::Completed).await;
    assert!(begun.elapsed() <= A_MINUTE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_arrived_after_it_was_given_up_is_found_within_a_minute() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let one = cluster.node("one", &registry(&gate, &journal));
    let later = plan("{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: a}]}");
    one.node.engine.submit(later, Start::Later, Resubmit::Same).await.expect("a plan");
    one.node.idle().await;
    change_behind_its_back(&one, "p", PlanCommand::Start).await;
    let begun = Instant::now();
    assert_eq!(one.node.ended("p").await.status, PlanStatus::Completed);
    assert!(begun.elapsed() <= A_MINUTE, "{:?}", begun.elapsed());
}
