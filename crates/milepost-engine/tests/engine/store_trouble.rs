//! A store that is away, forgetful, or another's by now; and how many commits share a sync.

use std::time::Duration;

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};

use crate::support::{Answers, Faulty, Flaky, Gate, Journal, World, of_task};

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_running_stages_finish_and_nothing_new_starts_or_gets_lost_or_runs_twice() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let store = Faulty::over(world.store());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let node = world.node_on(store.clone(), registry);
    node.submit("{plan: p, max_concurrency: 2, stages: [{name: s, uses: gate}, {name: e, uses: noop}], tasks: [{id: a}, {id: b}, {id: c}]}").await;
    gate.inside(2).await;
    store.answer(Answers::Away);
    gate.let_go(2);
    store.refused().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((gate.all().len(), gate.now_inside().len(), journal.calls().len()), (2, 0, 0));
    assert_eq!(node.engine.in_hand(), 2);
    store.answer(Answers::Truly);
    gate.open();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((gate.all().len(), journal.calls().len()), (3, 3));
    for id in ["a", "b", "c"] {
        assert_eq!(node.count(id, "STAGE_COMPLETED s 1").await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stage_beside_the_one_whose_commit_waits_goes_on_and_does_not_time_out_for_it() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let store = Faulty::over(world.store());
    let slow = crate::support::kind(|_| async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        milepost_engine::stage::Outcome::success()
    });
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind()).with("slow", slow);
    let node = world.node_on(store.clone(), registry);
    node.submit("{plan: p, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: slow, needs: [], timeout: 15s, retry: {max_attempts: 1}}, {name: c, uses: noop, needs: [a, b]}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.answer(Answers::Away);
    gate.open();
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.answer(Answers::Truly);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed, "{:?}", node.log("t").await);
}

#[tokio::test(start_paused = true)]
async fn commits_whose_answers_got_lost_are_found_in_the_log_and_made_once() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("b", 1);
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("flaky", flaky.kind()));
    store.answer(Answers::Forgets);
    let row = node.run("{plan: p, stages: [{name: a, uses: flaky}, {name: b, uses: flaky}, {name: c, uses: flaky}], tasks: [{id: t}, {id: u}]}").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Completed, 2));
    assert_eq!(flaky.journal.calls().len(), 7);
    let log = node.log("t").await;
    assert_eq!(log.iter().filter(|line| line.starts_with("STAGE_COMPLETED")).count(), 3, "{log:?}");
    node.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_is_fenced_off_ends_its_attempts_and_lets_go() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: gate, needs: []}, {name: c, uses: noop, needs: [a]}], tasks: [{id: t}]}").await;
    gate.inside(2).await;
    store.answer(Answers::Fences);
    gate.let_go(1);
    node.idle().await;
    assert_eq!(gate.cancelled().len(), 1);
    assert_eq!(journal.calls(), [""; 0]);
    let task = node.task("t").await;
    assert_eq!((task.status(), task.done().len()), (TaskStatus::Running, 0), "a fenced node changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_arrived_before_the_lease_was_lost_starts_nothing_more() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate}, {name: b, uses: noop}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.answer(Answers::Forgets);
    gate.let_go(1);
    store.refused().await;
    store.answer(Answers::Fences);
    node.idle().await;
    assert_eq!(journal.calls(), [""; 0], "another node has the task");
    assert_eq!(node.task("t").await.done().len(), 1, "what was written stays");
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_commit_was_refused_is_given_back_and_goes_on() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.answer(Answers::RefusesOnce);
    gate.let_go(2);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    let log = node.log("t").await;
    assert_eq!(log.iter().filter(|line| *line == "STAGE_STARTED a 1").count(), 2, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_verb_for_a_task_whose_commit_waits_is_answered_once_it_is_durable() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: gate}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.answer(Answers::Away);
    let engine = node.engine.clone();
    let asked = tokio::spawn(async move {
        engine.operate(of_task("t"), Verb::Cancel, milepost_core::task::By::new("tester")).await
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!asked.is_finished());
    store.answer(Answers::Truly);
    crate::support::bounded("the answer", asked).await.unwrap().unwrap();
    assert_eq!(node.status("t").await, TaskStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_many_tasks_share_syncs() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let tasks: Vec<String> = (0..500).map(|i| format!("{{id: t{i}}}")).collect();
    let stages: Vec<String> = (0..10).map(|i| format!("{{name: s{i}, uses: noop}}")).collect();
    let text =
        format!("{{plan: p, max_concurrency: 500, stages: [{}], tasks: [{}]}}", stages.join(","), tasks.join(","));
    assert_eq!(node.run(&text).await.counts.completed, 500);
    let stats = node.engine.store().stats();
    assert!(stats.commits >= 5000, "{stats:?}");
    assert!(stats.syncs * 5 < stats.commits, "{stats:?}");
}
