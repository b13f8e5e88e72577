//! Undoing what was done, in the right order.

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};

use crate::support::{Flaky, Gate, Journal, RETRY, World, of_plan, of_task};

fn chain(extra: &str) -> String {
    format!(
        "{{plan: p, {extra} defaults: {{retry: {{max_attempts: 1}}}}, stages: [
            {{name: a, uses: flaky, rollback: {{uses: flaky}}}},
            {{name: b, uses: flaky}},
            {{name: c, uses: flaky, rollback: {{uses: flaky}}}},
            {{name: d, uses: flaky, rollback: {{uses: flaky}}}},
            {{name: e, uses: flaky, rollback: {{uses: flaky}}}}], tasks: [{{id: t, tenant: x}}]}}"
    )
}

const UNDONE: [&str; 7] = ["t/a/1", "t/b/1", "t/c/1", "t/d/1", "t/d/1/undo", "t/c/1/undo", "t/a/1/undo"];

#[tokio::test(start_paused = true)]
async fn a_rollback_undoes_the_failed_stage_and_the_completed_ones_from_the_last_to_the_first() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("d", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    assert_eq!(node.run(&chain("")).await.status, PlanStatus::Failed);
    node.does(of_task("t"), Verb::Rollback).await;
    node.until_status("t", TaskStatus::RolledBack).await;
    assert_eq!(flaky.journal.calls(), UNDONE);
    node.idle().await;
    assert!(node.engine.store().locks().await.unwrap().is_empty());
    node.does(of_task("t"), RETRY).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(flaky.journal.calls()[7..], ["t/a/1", "t/b/1", "t/c/1", "t/d/1", "t/e/1"], "all of it again");
}

#[tokio::test(start_paused = true)]
async fn on_failure_rollback_needs_nobody_to_ask() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("d", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    assert_eq!(node.run(&chain("on_failure: rollback,")).await.status, PlanStatus::Failed);
    assert_eq!(node.status("t").await, TaskStatus::RolledBack);
    assert_eq!(flaky.journal.calls(), UNDONE);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_goes_on_with_the_rest_and_can_be_asked_for_again() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("d", 1);
    flaky.fail("c/undo", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    node.run(&chain("on_failure: rollback,")).await;
    assert_eq!(node.status("t").await, TaskStatus::RollbackFailed);
    assert_eq!(flaky.journal.calls(), UNDONE);
    assert_eq!(node.does(of_plan("p"), Verb::Rollback).await, 1);
    node.until_status("t", TaskStatus::RolledBack).await;
    assert_eq!(flaky.journal.calls().last().unwrap(), "t/c/1/undo");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_with_nothing_to_undo_is_refused() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("s", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    node.run("{plan: p, stages: [{name: s, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: t}]}").await;
    assert!(node.refuses(of_task("t"), Verb::Rollback).await.contains("has a rollback handler"));
    assert!(node.refuses(of_plan("p"), Verb::Rollback).await.contains("something to roll back"));
    assert_eq!(node.status("t").await, TaskStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_cut_off_by_a_crash_goes_on_where_it_was_also_of_an_ended_plan() {
    let (world, flaky, gate) = (World::new(), Flaky::default(), Gate::shut());
    flaky.fail("d", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()).with("gate", gate.kind()));
    let text = chain("")
        .replace("{name: c, uses: flaky, rollback: {uses: flaky}}", "{name: c, uses: flaky, rollback: {uses: gate}}");
    node.run(&text).await;
    node.does(of_task("t"), Verb::Rollback).await;
    gate.inside(1).await;
    let (world, after) = (world.crashed(), Journal::default());
    let node = world.node(Registry::new().with("flaky", after.kind()).with("gate", after.kind()));
    node.until_status("t", TaskStatus::RolledBack).await;
    assert_eq!(after.calls(), ["t/c/1/undo", "t/a/1/undo"]);
}

/// The failed task gave its tenant back, and another one has it by now.
#[tokio::test(start_paused = true)]
async fn a_rollback_whose_tenant_is_busy_waits_for_it_and_then_happens_also_when_its_plan_has_ended() {
    for recovery in ["auto", "manual"] {
        let (world, flaky, gate) = (World::new(), Flaky::default(), Gate::shut());
        flaky.fail("d", 1);
        let node = world.node(Registry::new().with("flaky", flaky.kind()).with("gate", gate.kind()));
        assert_eq!(node.run(&chain(&format!("recovery: {recovery},"))).await.status, PlanStatus::Failed);
        node.submit("{plan: q, stages: [{name: s, uses: gate}], tasks: [{id: other, tenant: x}]}").await;
        gate.inside(1).await;
        node.does(of_task("t"), Verb::Rollback).await;
        tokio::time::sleep(std::time::Duration::from_secs(100)).await;
        assert_eq!(flaky.journal.calls().len(), 4, "two of a tenant at once");
        gate.open();
        node.until_status("t", TaskStatus::RolledBack).await;
        assert_eq!(flaky.journal.calls(), UNDONE);
    }
}
