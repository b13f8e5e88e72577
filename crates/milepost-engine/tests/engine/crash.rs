//! What a crash leaves behind, and what goes on from there.

use milepost_core::task::{PlanStatus, StageStatus, TaskStatus};
use milepost_engine::{Registry, Verb};

use crate::support::{Gate, Journal, World, of_plan, stage};

#[tokio::test(start_paused = true)]
async fn after_a_crash_completed_stages_do_not_run_again_and_the_cut_off_attempt_repeats_its_number() {
    let (world, gate, before) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("noop", before.kind()).with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: noop}, {name: c, uses: gate}, {name: d, uses: noop}], tasks: [{id: t, tenant: x}]}").await;
    gate.inside(1).await;

    let (world, after) = (world.crashed(), Journal::default());
    let node = world.node(Registry::new().with("noop", after.kind()).with("gate", after.kind()));
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(before.calls(), ["t/a/1", "t/b/1"]);
    assert_eq!(after.calls(), ["t/c/1", "t/d/1"]);
    assert_eq!(node.count("t", "STAGE_STARTED c 1").await, 2);
    assert_eq!(node.count("t", "TASK_INTERRUPTED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_cut_off_by_crashes_uses_none_up() {
    let (mut world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate, retry: {max_attempts: 1}}], tasks: [{id: t}]}").await;
    gate.came(1).await;
    let mut node = node;
    for crash in 1..=9 {
        world = world.crashed();
        node = world.node(Registry::new().with("gate", gate.kind()));
        gate.came(1 + crash).await;
    }
    gate.open();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert!(gate.all().iter().all(|call| call == "t/s/1"));
}

#[tokio::test(start_paused = true)]
async fn ten_crashes_in_a_row_on_one_stage_fail_the_task_and_nothing_else() {
    let (mut world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let node = world.node(registry.clone());
    node.submit("{plan: p, max_concurrency: 1, tasks: [{id: t, stages: [{name: s, uses: gate}]}, {id: u, stages: [{name: s, uses: noop}]}]}").await;
    gate.came(1).await;
    for crash in 1..=9 {
        world = world.crashed();
        world.node(registry.clone());
        gate.came(1 + crash).await;
    }
    let world = world.crashed();
    let node = world.node(registry);
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.failed, row.counts.completed), (PlanStatus::Failed, 1, 1));
    assert_eq!(crate::support::error_type(&node.task("t").await), milepost_core::failure::ErrorType::CrashLoop);
    assert_eq!(node.count("t", "DEAD_LETTERED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn parallel_stages_go_on_after_a_crash_each_from_where_it_was() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: gate, needs: []}, {name: c, uses: gate, needs: [a]}], tasks: [{id: t}]}").await;
    gate.inside(2).await;
    gate.let_go(1);
    let task = node.until("t", |task| task.done().len() == 1).await;
    let done = task.done()[0].to_string();
    let (world, after) = (world.crashed(), Journal::default());
    let node = world.node(Registry::new().with("gate", after.kind()));
    node.ended("p").await;
    assert_eq!(after.calls().len(), 2);
    assert_eq!(after.count(&format!("t/{done}/1")), 0);
    assert_eq!(stage(&node.task("t").await, "b"), StageStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_pause_asked_for_before_a_crash_takes_effect_after_it() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    node.does(crate::support::of_task("t"), Verb::Pause).await;
    let (world, after) = (world.crashed(), Journal::default());
    let node = world.node(Registry::new().with("gate", after.kind()));
    node.until_status("t", TaskStatus::Paused).await;
    assert_eq!(after.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_plan_that_a_crash_cut_short_is_finished_at_the_next_start() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    let tasks: Vec<String> = (0..30).map(|i| format!("{{id: t{i}, tenant: x{i}}}")).collect();
    node.submit(&format!(
        "{{plan: p, recovery: manual, stages: [{{name: s, uses: gate}}], tasks: [{}]}}",
        tasks.join(",")
    ))
    .await;
    gate.inside(10).await;
    // Only the plan's own part of the verb, and then the crash.
    let change = milepost_store::PlanChange {
        plan: crate::support::plan_id("p"),
        command: milepost_core::plan::PlanCommand::Cancel,
        by: milepost_core::task::By::new("tester"),
        expected: None,
        now: world.clock.now(),
    };
    node.engine.store().change_plan(change).await.unwrap();
    let (world, after) = (world.crashed(), Journal::default());
    let node = world.node(Registry::new().with("gate", after.kind()));
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.cancelled), (PlanStatus::Cancelled, 30));
    assert_eq!(after.calls(), [""; 0]);
    assert!(node.engine.store().locks().await.unwrap().is_empty());
    assert!(node.refuses(of_plan("p"), Verb::Pause).await.contains("it is CANCELLED"));
}
