//! A node that stops in good order, and the one that carries on.

use milepost_core::task::{PlanStatus, StageStatus, TaskStatus};
use milepost_engine::Registry;

use crate::support::{Answers, Faulty, Flaky, Gate, Journal, World, stage};

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_stages_finish_starts_nothing_new_and_another_node_carries_on() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let node = world.node(registry.clone());
    node.submit("{plan: p, max_concurrency: 2, stages: [{name: s, uses: gate}, {name: e, uses: noop}], tasks: [{id: a}, {id: b}, {id: c}]}").await;
    gate.inside(2).await;
    let stopping = {
        let engine = node.engine.clone();
        tokio::spawn(async move { engine.stop().await })
    };
    tokio::task::yield_now().await;
    assert!(!stopping.is_finished());
    gate.let_go(2);
    crate::support::bounded("the stop", stopping).await.unwrap();
    assert_eq!((gate.all().len(), journal.calls().len(), node.engine.in_hand()), (2, 0, 0));
    for id in ["a", "b"] {
        let task = node.task(id).await;
        assert_eq!(
            (task.status(), task.interrupted(), stage(&task, "s")),
            (TaskStatus::Running, true, StageStatus::Completed)
        );
    }
    assert_eq!(node.status("c").await, TaskStatus::Pending);
    drop(node);

    gate.open();
    let node = world.node(registry);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((gate.all().len(), journal.calls().len()), (3, 3), "no stage ran twice");
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_parallel_stages_waits_for_all_of_them() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: gate, needs: []}, {name: c, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(2).await;
    let engine = node.engine.clone();
    let stopping = tokio::spawn(async move { engine.stop().await });
    gate.let_go(1);
    node.until("t", |task| task.done().len() == 1).await;
    assert!(!stopping.is_finished() && !node.task("t").await.interrupted());
    gate.let_go(1);
    crate::support::bounded("the stop", stopping).await.unwrap();
    assert_eq!((node.task("t").await.interrupted(), gate.all().len()), (true, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_retry_and_the_retry_keeps_its_time() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("s", 1);
    let registry = Registry::new().with("flaky", flaky.kind());
    let node = world.node(registry.clone());
    node.submit("{plan: p, stages: [{name: s, uses: flaky, retry: {strategy: fixed, base: 20s, jitter: false}}], tasks: [{id: t}]}").await;
    let due = node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await.next_due();
    node.stop().await;
    assert!(node.task("t").await.interrupted());
    drop(node);
    let node = world.node(registry);
    node.ended("p").await;
    assert_eq!(node.task("t").await.ended_at(), due);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_claimed_while_the_node_stops_runs_no_stage() {
    let (world, journal) = (World::new(), Journal::default());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("noop", journal.kind()));
    store.claims_take(std::time::Duration::from_secs(1));
    // The claim under way when the stop is asked for finds the plan.
    node.submit("{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: t}]}").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    node.stop().await;
    let task = node.task("t").await;
    assert_eq!(journal.calls(), [""; 0]);
    assert!(task.status() == TaskStatus::Pending || task.interrupted(), "{:?}", node.log("t").await);
    assert_eq!(node.count("t", "TASK_STARTED").await, 1, "the claim was made: this is what is tested");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_claim_stops_at_once() {
    let (world, journal) = (World::new(), Journal::default());
    let store = Faulty::over(world.store());
    store.answer(Answers::Away);
    let node = world.node_on(store.clone(), Registry::new().with("noop", journal.kind()));
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    let asked = tokio::time::Instant::now();
    node.stop().await;
    assert!(asked.elapsed() < std::time::Duration::from_millis(10), "{:?}", asked.elapsed());
}
