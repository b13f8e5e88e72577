//! What becomes of tasks while the store is away, as `on_store_loss` says.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::ErrorType;
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{FeedItem, OnStoreLoss, Registry, Verb};
use serde_json::json;

use crate::support::{
    Answers, Cluster, Diary, Faulty, Gate, Journal, Node, RETRY, World, bounded, error_type, flow, of_task, task_id,
};

const THREE_STAGES: &str = "{plan: p, stages: [{name: a, uses: gate}, {name: b, uses: noop}, {name: c, uses: gate}, {name: d, uses: noop}], tasks: [{id: t}]}";

struct Set {
    store: Arc<Faulty>,
    node: Node,
    gate: Gate,
    journal: Journal,
    _world: World,
}

fn set(on_store_loss: OnStoreLoss) -> Set {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let store = Faulty::over(world.store());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let node = world.idle_node(store.clone(), registry, |options| options.on_store_loss = on_store_loss);
    node.engine.start();
    Set { store, node, gate, journal, _world: world }
}

#[tokio::test(start_paused = true)]
async fn continue_goes_on_in_memory_says_so_and_writes_all_of_it_when_the_store_is_back() {
    let set = set(OnStoreLoss::Continue);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    let mut feed = set.node.engine.feed().subscribe();
    set.store.answer(Answers::Away);
    set.gate.let_go(1);
    // The third stage begins, though the store knows of none that has ended.
    assert_eq!(set.gate.came(2).await, ["t/a/1", "t/c/1"]);
    assert_eq!((set.node.engine.is_durable(&task_id("t")), set.node.engine.not_durable()), (false, 1));
    assert!(set.node.engine.store_is_away());
    assert_eq!(set.node.task("t").await.done().len(), 0, "the store knows nothing yet");
    tokio::time::sleep(Duration::from_secs(30)).await;
    set.store.answer(Answers::Truly);
    set.gate.open();
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
    set.node.idle().await;
    assert!(set.node.engine.is_durable(&task_id("t")) && !set.node.engine.store_is_away());
    for stage in ["a", "b", "c", "d"] {
        assert_eq!(set.node.count("t", &format!("STAGE_COMPLETED {stage} 1")).await, 1);
    }
    assert_eq!((set.gate.all().len(), set.journal.calls().len()), (2, 2), "no stage ran twice");
    let mut told = Vec::new();
    while let Ok(item) = feed.try_recv() {
        if let FeedItem::Durability { durable, .. } = item {
            told.push(durable);
        }
    }
    assert_eq!(told, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_went_on_to_its_end_without_the_store_is_written_whole_when_it_is_back() {
    let set = set(OnStoreLoss::Continue);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    set.store.answer(Answers::Away);
    set.gate.open();
    set.gate.came(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((set.journal.calls().len(), set.node.engine.in_hand()), (2, 1), "it has run, and cannot end yet");
    set.store.answer(Answers::Truly);
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(set.node.count("t", "TASK_COMPLETED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_is_found_when_more_was_done_meanwhile() {
    let set = set(OnStoreLoss::Continue);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    // Commits are made, and nobody hears of it; what follows is tried together with them.
    set.store.answer(Answers::Forgets);
    set.gate.let_go(1);
    set.gate.came(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    set.store.answer(Answers::Truly);
    set.gate.open();
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
    let log = set.node.log("t").await;
    assert_eq!(log.iter().filter(|line| line.starts_with("STAGE_COMPLETED")).count(), 4, "{log:?}");
    assert_eq!((set.gate.all().len(), set.journal.calls().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_did_without_the_store_is_discarded_when_its_task_is_anothers_by_then() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let one = cluster.node_with("one", &registry, |options| options.on_store_loss = OnStoreLoss::Continue);
    one.node.submit(THREE_STAGES).await;
    gate.inside(1).await;
    let two = cluster.node("two", &registry);
    one.line.answer(Answers::Away);
    gate.let_go(1);
    gate.came(2).await;
    assert!(!one.node.engine.is_durable(&task_id("t")));
    // The other node takes over, and begins at the first stage: nobody told it of more.
    assert_eq!(gate.came(3).await[2], "t/a/1");
    one.line.answer(Answers::Truly);
    one.node.idle().await;
    assert!(one.node.engine.is_durable(&task_id("t")));
    assert_eq!(two.node.task("t").await.done().len(), 0);
    gate.open();
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(two.node.count("t", "STAGE_COMPLETED a 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_verb_is_answered_when_it_is_durable_also_for_a_task_that_goes_on_without_the_store() {
    let set = set(OnStoreLoss::Continue);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    set.store.answer(Answers::Away);
    set.gate.let_go(1);
    set.gate.came(2).await;
    let engine = set.node.engine.clone();
    let by = milepost_core::task::By::new("tester");
    let asked = tokio::spawn(async move { engine.operate(of_task("t"), Verb::Pause, by).await });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!asked.is_finished());
    set.store.answer(Answers::Truly);
    bounded("the answer", asked).await.unwrap().unwrap();
    set.gate.open();
    set.node.until_status("t", TaskStatus::Paused).await;
    assert_eq!(set.node.task("t").await.done().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_workflow_goes_on_without_the_store_and_is_written_when_it_is_back() {
    let (world, diary) = (World::new(), Diary::default());
    let noting = diary.clone();
    let steps = flow("steps", move |ctx, _| {
        let diary = noting.clone();
        async move {
            for name in ["one", "two", "three"] {
                let work = || async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    diary.noted(name)
                };
                ctx.stage(name).run(work).await?;
            }
            let () = ctx.signal("end").await?;
            Ok(json!("done"))
        }
    });
    let store = Faulty::over(world.store());
    let node = world.idle_node(store.clone(), steps.registry(), |options| {
        options.on_store_loss = OnStoreLoss::Continue;
    });
    node.engine.start();
    node.begin(&steps, "w", json!(null)).await;
    node.until("w", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    store.answer(Answers::Away);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(diary.lines(), ["one", "two", "three"]);
    store.answer(Answers::Truly);
    node.signal("w", "end", json!(null)).await;
    assert_eq!(node.outcome("w").await.unwrap(), json!("done"));
    assert_eq!(diary.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn fail_stops_at_the_stage_boundary_and_a_retry_goes_on_after_what_was_done() {
    let set = set(OnStoreLoss::Fail);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    set.store.answer(Answers::Away);
    set.gate.open();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(set.journal.calls().is_empty(), "nothing starts after the stage that ran");
    set.store.answer(Answers::Truly);
    let task = set.node.until_status("t", TaskStatus::Failed).await;
    assert_eq!((error_type(&task), task.done().len()), (ErrorType::Persistence, 1));
    set.node.does(of_task("t"), RETRY).await;
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((set.gate.all().len(), set.journal.calls().len()), (2, 2), "the first stage did not run again");
}

#[tokio::test(start_paused = true)]
async fn fail_finds_what_had_been_written_before_the_store_went_away() {
    let set = set(OnStoreLoss::Fail);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    // The end of the first stage is written, and nobody hears of it.
    set.store.answer(Answers::Forgets);
    set.gate.open();
    set.store.refused().await;
    set.store.answer(Answers::Away);
    tokio::time::sleep(Duration::from_secs(60)).await;
    set.store.answer(Answers::Truly);
    let task = set.node.until_status("t", TaskStatus::Failed).await;
    assert_eq!((error_type(&task), task.done().len()), (ErrorType::Persistence, 1));
    assert_eq!(set.node.count("t", "STAGE_COMPLETED a 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn fail_ends_the_stages_that_run_beside_the_one_that_ended() {
    let set = set(OnStoreLoss::Fail);
    set.node
        .submit(
            "{plan: p, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: gate, needs: []}], tasks: [{id: t}]}",
        )
        .await;
    set.gate.inside(2).await;
    set.store.answer(Answers::Away);
    set.gate.let_go(1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(set.gate.cancelled().len(), 1);
    set.store.answer(Answers::Truly);
    let task = set.node.until_status("t", TaskStatus::Failed).await;
    assert_eq!(task.done().len(), 1);
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_fails_nothing() {
    let set = set(OnStoreLoss::Fail);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    set.store.answer(Answers::Away);
    set.gate.open();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    set.store.answer(Answers::Truly);
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn hold_says_that_the_store_is_away_and_that_it_is_back() {
    let set = set(OnStoreLoss::Hold);
    set.node.submit(THREE_STAGES).await;
    set.gate.inside(1).await;
    assert!(!set.node.engine.store_is_away());
    set.store.answer(Answers::Away);
    set.gate.open();
    set.store.refused().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(set.node.engine.store_is_away() && set.node.engine.is_durable(&task_id("t")));
    set.store.answer(Answers::Truly);
    assert_eq!(set.node.ended("p").await.status, PlanStatus::Completed);
    assert!(!set.node.engine.store_is_away());
}
