//! How much runs at once: slots of a plan, tenants, room on the node.

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};
use milepost_store::{Resubmit, Start};

use crate::support::{Gate, Journal, World, of_task, plan};

fn hundred() -> String {
    "{plan: p, stages: [{name: s, uses: gate}], tasks: [{matrix: {tenant: [".to_owned()
        + &(0..100).map(|i| format!("t{i}")).collect::<Vec<_>>().join(",")
        + "]}}]}"
}

#[tokio::test(start_paused = true)]
async fn a_plan_never_runs_more_than_its_max_concurrency_and_is_always_refilled_to_it() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(&hundred()).await;
    gate.inside(10).await;
    for gone in 1..=90 {
        gate.let_go(1);
        gate.came(10 + gone).await;
        assert_eq!(gate.now_inside().len(), 10);
        assert_eq!(node.plan("p").await.counts.running, 10);
    }
    gate.open();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((gate.peak(), gate.all().len()), (10, 100));
}

#[tokio::test(start_paused = true)]
async fn of_100_tasks_with_20_completed_before_a_crash_exactly_80_run() {
    let (world, before) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", before.kind()));
    node.submit(&hundred()).await;
    before.let_go(20);
    before.came(30).await;
    assert_eq!(node.plan("p").await.counts.completed, 20);

    let (world, after) = (world.crashed(), Gate::shut());
    after.open();
    let node = world.node(Registry::new().with("gate", after.kind()));
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Completed, 100));
    let mut ran = after.all();
    ran.sort();
    ran.dedup();
    assert_eq!((after.all().len(), ran.len()), (80, 80));
    assert!(after.peak() <= 10);
}

#[tokio::test(start_paused = true)]
async fn no_two_tasks_of_a_tenant_run_at_once_also_of_two_plans_and_the_next_runs_when_the_lock_is_free() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: p1, tenant: acme}, {id: p2, tenant: acme}, {id: p3, tenant: other}]}").await;
    node.submit("{plan: q, stages: [{name: s, uses: gate}], tasks: [{id: q1, tenant: acme}]}").await;
    let mut inside = gate.inside(2).await;
    inside.sort();
    assert_eq!(inside, ["p1/s/1", "p3/s/1"]);
    assert_eq!(node.stored("p2").await.blocked_by.as_deref(), Some("p:p1"));
    assert_eq!(node.stored("q1").await.blocked_by.as_deref(), Some("p:p1"));
    gate.let_go(2);
    // One of the two that waited is next, and only when it has ended comes the other.
    gate.came(3).await;
    assert_eq!(gate.now_inside().len(), 1);
    gate.let_go(1);
    gate.came(4).await;
    assert_eq!(gate.now_inside().len(), 1);
    gate.open();
    node.ended("p").await;
    node.ended("q").await;
    assert!(node.engine.store().locks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_tenant_is_busy_takes_no_slot_of_its_plan() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, max_concurrency: 2, stages: [{name: s, uses: gate}], tasks: [{id: a, tenant: x}, {id: b, tenant: x}, {id: c, tenant: x}, {id: d, tenant: y}]}").await;
    let mut inside = gate.inside(2).await;
    inside.sort();
    assert_eq!(inside, ["a/s/1", "d/s/1"]);
    gate.open();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_paused_task_keeps_its_tenant_and_a_waiting_one_survives_a_crash_in_line() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}, {name: e, uses: gate}], tasks: [{id: a, tenant: x}, {id: b, tenant: x}]}").await;
    gate.inside(1).await;
    node.does(of_task("a"), Verb::Pause).await;
    gate.let_go(1);
    node.until_status("a", TaskStatus::Paused).await;
    node.idle().await;

    let world = world.crashed();
    let node = world.node(Registry::new().with("gate", gate.kind()));
    assert_eq!(node.stored("b").await.blocked_by.as_deref(), Some("p:a"));
    gate.open();
    node.does(of_task("a"), Verb::Cancel).await;
    node.until_status("b", TaskStatus::Completed).await;
    assert_eq!(gate.all(), ["a/s/1", "b/s/1", "b/e/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_has_no_more_tasks_in_hand_than_it_has_room_for() {
    let (world, gate) = (World::new(), Gate::shut());
    let registry = Registry::new().with("gate", gate.kind());
    let node = world.idle_node(world.store(), registry, |options| options.capacity = 3);
    node.engine.start();
    node.submit(&hundred()).await;
    gate.inside(3).await;
    assert_eq!(node.engine.in_hand(), 3);
    gate.open();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(gate.peak(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_refuses_busy_tenants_is_not_accepted_and_leaves_nothing_behind() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: a, tenant: x}]}").await;
    gate.inside(1).await;
    let refusing =
        "{plan: q, on_tenant_conflict: refuse, stages: [{name: s, uses: noop}], tasks: [{id: b, tenant: x}]}";
    let refused = node.engine.submit(plan(refusing), Start::AtOnce, Resubmit::Same).await.unwrap_err();
    assert!(refused.to_string().contains("busy: x"), "{refused}");
    gate.open();
    node.ended("p").await;
    assert_eq!(node.run(refusing).await.status, PlanStatus::Completed);
}
