//! Who takes up what a lost node had: `recovery: auto`, `recovery: manual`, and a person's word.

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};

use crate::support::{Gate, Journal, Node, RETRY, World, of_plan, of_task, plan_id};

/// Two tasks cut off by a crash, one of each kind of plan; and what runs after it.
async fn crashed() -> (World, Journal) {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    for recovery in ["auto", "manual"] {
        let text = "{plan: X, recovery: X, stages: [{name: s, uses: gate}], tasks: [{id: X-t, tenant: X}]}";
        node.submit(&text.replace('X', recovery)).await;
    }
    gate.inside(2).await;
    (world.crashed(), Journal::default())
}

async fn manual_is_left_alone(node: &Node, journal: &Journal) {
    assert_eq!(node.ended("auto").await.status, PlanStatus::Completed);
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(journal.calls(), ["auto-t/s/1"]);
    assert!(node.stored("manual-t").await.orphaned);
    let query = milepost_store::TaskQuery {
        of: milepost_store::TasksOf::Plan(plan_id("manual")),
        statuses: vec![TaskStatus::Running],
        after: None,
        limit: 10,
    };
    assert!(node.engine.store().tasks(query).await.unwrap().items[0].interrupted);
}

#[tokio::test(start_paused = true)]
async fn auto_takes_over_and_manual_waits_for_a_person_who_may_resume_or_retry() {
    for (verb, target) in [
        (Verb::Resume, of_task("manual-t")),
        (RETRY, of_task("manual-t")),
        (Verb::Resume, of_plan("manual")),
        (RETRY, of_plan("manual")),
    ] {
        let (world, journal) = crashed().await;
        let node = world.node(Registry::new().with("gate", journal.kind()));
        manual_is_left_alone(&node, &journal).await;
        assert_eq!(node.does(target, verb).await, 1);
        assert_eq!(node.ended("manual").await.status, PlanStatus::Completed);
        assert_eq!(journal.calls(), ["auto-t/s/1", "manual-t/s/1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_task_of_a_manual_plan_can_be_cancelled_and_frees_its_tenant() {
    let (world, journal) = crashed().await;
    let node = world.node(Registry::new().with("gate", journal.kind()));
    manual_is_left_alone(&node, &journal).await;
    node.does(of_task("manual-t"), Verb::Cancel).await;
    assert_eq!(node.ended("manual").await.status, PlanStatus::Failed);
    assert!(node.engine.store().locks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_works_on_one_plan_takes_up_that_one_whatever_its_recovery_and_no_other() {
    for (mine, other) in [("manual", "auto"), ("auto", "manual")] {
        let (world, journal) = crashed().await;
        let registry = Registry::new().with("gate", journal.kind());
        let node = world.idle_node(world.store(), registry, |options| options.only = Some(plan_id(mine)));
        node.engine.start();
        assert_eq!(node.ended(mine).await.status, PlanStatus::Completed);
        assert_eq!(journal.calls(), [format!("{mine}-t/s/1")]);
        assert_eq!(node.plan(other).await.status, PlanStatus::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_task_of_a_manual_plan_also_waits_for_a_person() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(
        "{plan: p, recovery: manual, stages: [{name: a, uses: gate}, {name: b, uses: gate}], tasks: [{id: t}]}",
    )
    .await;
    gate.inside(1).await;
    gate.let_go(1);
    let engine = node.engine.clone();
    engine.stop().await;
    drop((node, engine));
    let journal = Journal::default();
    let node = world.node(Registry::new().with("gate", journal.kind()));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(journal.calls(), [""; 0]);
    node.does(of_task("t"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
}

/// The plan was paused by a crash's timing alone: a task that waits for a retry was not told.
#[tokio::test(start_paused = true)]
async fn a_retry_that_came_due_under_a_paused_plan_fires_when_the_plan_goes_on_also_of_a_manual_one() {
    for recovery in ["auto", "manual"] {
        let (world, flaky) = (World::new(), crate::support::Flaky::default());
        flaky.fail("s", 1);
        let node = world.node(Registry::new().with("flaky", flaky.kind()));
        node.submit(&format!("{{plan: p, recovery: {recovery}, stages: [{{name: s, uses: flaky, retry: {{strategy: fixed, base: 50s, jitter: false}}}}], tasks: [{{id: t}}]}}")).await;
        node.until("t", |task| task.next_due().is_some()).await;
        node.idle().await;
        let change = |command| milepost_store::PlanChange {
            plan: plan_id("p"),
            command,
            by: milepost_core::task::By::new("tester"),
            expected: None,
            now: world.clock.now(),
        };
        node.engine.store().change_plan(change(milepost_core::plan::PlanCommand::Pause)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(100)).await;
        assert_eq!(flaky.journal.calls(), ["t/s/1"]);
        node.does(of_plan("p"), Verb::Resume).await;
        assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    }
}
