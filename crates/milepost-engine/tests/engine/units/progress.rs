//! What watchers see of units: never backwards, never without their last word, each at its own pace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::api::TaskProgress;
use milepost_core::id::TaskId;
use milepost_core::task::{Event, PlanStatus, TaskView};
use milepost_engine::stage::{Outcome, Progress, StageCall, StageKind};
use milepost_engine::{FeedItem, Registry};
use tokio::sync::broadcast;

use crate::support::{Copier, ROWS, World, bounded, kind, plan_id};

/// What was shown of each task, until the plan and all of them have ended: the events that begin and end it, and what
/// it said between.
async fn shown(feed: &mut broadcast::Receiver<FeedItem>) -> HashMap<TaskId, Vec<String>> {
    let mut shown: HashMap<TaskId, Vec<String>> = HashMap::new();
    let mut completed = false;
    let ended = |unit: &Vec<String>| unit.last().is_some_and(|last| last == "end");
    while !completed || !shown.values().all(ended) {
        match bounded("the next item", feed.recv()).await.expect("nobody lags") {
            FeedItem::Task { task, records, .. } => {
                for record in records.iter() {
                    match record.event() {
                        Event::StageStarted { .. } => shown.entry(task.clone()).or_default().push("start".to_owned()),
                        Event::TaskCompleted { .. } => shown.entry(task.clone()).or_default().push("end".to_owned()),
                        _ => {}
                    }
                }
            }
            FeedItem::Progress { task, progress: Some(progress), .. } => {
                let words = format!("{}/{}", progress.done, progress.total);
                shown.entry(task).or_default().push(words);
            }
            FeedItem::Plan { status, .. } => completed = status == PlanStatus::Completed,
            FeedItem::Progress { .. } | FeedItem::Durability { .. } => {}
        }
    }
    shown
}

fn batches(every: Duration) -> Arc<dyn StageKind> {
    kind(move |call: StageCall| async move {
        for batch in 1..=4 {
            tokio::time::sleep(every).await;
            call.reporter.progress(Progress { done: batch * 2_500, total: 10_000 });
        }
        Outcome::success()
    })
}

const THREE: &str = "{plan: p, stages: [{name: copy, uses: copy}], tasks: [{id: a}, {id: b}, {id: c}]}";

#[tokio::test(start_paused = true)]
async fn three_units_of_four_batches_show_their_start_each_batch_and_their_end() {
    let world = World::new();
    let node = world.node(Registry::new().with("copy", batches(Duration::from_secs(1))));
    let mut feed = node.engine.feed().subscribe();
    node.submit(THREE).await;
    let shown = shown(&mut feed).await;
    assert_eq!(shown.len(), 3);
    for unit in shown.values() {
        assert_eq!(unit[..], ["start", "2500/10000", "5000/10000", "7500/10000", "10000/10000", "end"]);
    }
}

#[tokio::test(start_paused = true)]
async fn of_batches_that_come_faster_than_anybody_reads_the_start_the_last_and_the_end_are_shown() {
    let world = World::new();
    let node = world.node(Registry::new().with("copy", batches(Duration::from_millis(1))));
    let mut feed = node.engine.feed().subscribe();
    node.submit(THREE).await;
    let shown = shown(&mut feed).await;
    assert_eq!(shown.len(), 3);
    for unit in shown.values() {
        assert_eq!(unit[..], ["start", "10000/10000", "end"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_skipped_is_not_shown_as_done() {
    let world = World::new();
    let skips = kind(|call: StageCall| async move {
        call.reporter.progress(Progress { done: 7_500, total: 10_000 });
        Outcome::success()
    });
    let node = world.node(Registry::new().with("copy", skips));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: copy, uses: copy}], tasks: [{id: a}]}").await;
    let shown = shown(&mut feed).await;
    assert_eq!(shown.values().next().unwrap()[..], ["start", "7500/10000", "end"]);
    assert_eq!(node.seen("a").await.1, 100.0, "and yet it is completed");
}

#[tokio::test(start_paused = true)]
async fn a_unit_without_rows_completes_at_100_and_is_never_nan() {
    let world = World::new();
    let empty = kind(|call: StageCall| async move {
        call.reporter.progress(Progress { done: 0, total: 0 });
        tokio::time::sleep(Duration::from_secs(1)).await;
        Outcome::success()
    });
    let node = world.node(Registry::new().with("copy", empty));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: copy, uses: copy}], tasks: [{id: a}]}").await;
    node.ended("p").await;
    while let Ok(item) = feed.try_recv() {
        if let FeedItem::Progress { percent, rate, .. } = item {
            assert_eq!(percent, 0.0);
            assert!(rate.is_none_or(f64::is_finite), "{rate:?}");
        }
    }
    assert_eq!(node.seen("a").await.1, 100.0);
}

/// What is live of a task, over what the store has.
async fn live(node: &crate::support::Node, task: &str) -> TaskProgress {
    node.engine.live_progress(TaskProgress::from(&TaskView::from(&node.stored(task).await)))
}

#[tokio::test(start_paused = true)]
async fn a_total_that_grows_takes_no_percentage_back() {
    let world = World::new();
    let grows = kind(|call: StageCall| async move {
        for (done, total) in [(50, 100), (60, 300), (70, 300), (240, 300)] {
            call.reporter.progress(Progress { done, total });
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        call.cancel.cancelled().await;
        Outcome::success()
    });
    let node = world.node(Registry::new().with("copy", grows));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: copy, uses: copy, timeout: 1h}], tasks: [{id: a}]}").await;
    let (mut seen, mut newest) = (Vec::new(), 0.0);
    while newest < 80.0 {
        if let FeedItem::Progress { percent, progress, .. } = bounded("progress", feed.recv()).await.unwrap() {
            let asked = live(&node, "a").await;
            assert_eq!((asked.percent, asked.done), (percent, progress.map(|progress| progress.done)));
            seen.push(percent);
            newest = percent;
        }
    }
    assert_eq!(seen, [50.0, 50.0, 50.0, 80.0]);
}

#[tokio::test(start_paused = true)]
async fn each_unit_has_its_own_pace_and_the_plan_the_sum_of_them() {
    let world = World::new();
    let slow_start = kind(|call: StageCall| async move {
        // One has been at it for a minute when the other begins, and is slower.
        let (wait, each) = if call.task.as_str() == "late" { (60, 1_000) } else { (0, 100) };
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let total = 1_000_000;
        for batch in 0.. {
            call.reporter.progress(Progress { done: batch * each, total });
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Outcome::success()
    });
    let node = world.node(Registry::new().with("copy", slow_start));
    node.submit("{plan: p, stages: [{name: copy, uses: copy, timeout: 10h}], tasks: [{id: early}, {id: late}]}").await;
    tokio::time::sleep(Duration::from_millis(70_100)).await;
    let (early, late) = (live(&node, "early").await, live(&node, "late").await);
    let near = |rate: Option<f64>, wanted: f64| (rate.unwrap() - wanted).abs() < wanted * 0.1;
    assert!(near(early.rate, 200.0), "{:?}", early.rate);
    assert!(near(late.rate, 2_000.0), "{:?}", late.rate);
    let left = early.total.unwrap() - early.done.unwrap();
    assert_eq!(early.eta_seconds, Some((left as f64 / early.rate.unwrap()).ceil() as u64));

    let row = node.plan("p").await;
    let of_plan = |progress| node.engine.live_progress(progress);
    let plan =
        milepost_store::report::plan_progress(&**node.engine.store(), &row, world.clock.now(), of_plan).await.unwrap();
    assert!(near(plan.rate, 2_200.0), "{:?}", plan.rate);
    assert_eq!(plan.eta_seconds, early.eta_seconds, "no sooner than the slowest");
    // On a node that does not run them, only what is stored is known.
    let elsewhere =
        milepost_store::report::plan_progress(&**node.engine.store(), &row, world.clock.now(), |p| p).await.unwrap();
    assert_eq!((elsewhere.rate, elsewhere.running.len()), (None, 2));
    assert!(elsewhere.running.iter().all(|task| task.done.is_some()));
    // How fast that grows, it learns by looking again.
    let other = world.idle_node(node.engine.store().clone(), Registry::new(), |_| {});
    assert_eq!(live(&other, "late").await.rate, None);
    tokio::time::sleep(Duration::from_secs(40)).await;
    let seen = live(&other, "late").await;
    assert!(near(seen.rate, 2_000.0) && seen.eta_seconds.is_some(), "{seen:?}");
    assert!(node.engine.store().plan(&plan_id("p")).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_attempt_never_shows_the_percentage_of_the_one_before() {
    let (world, copier) = (World::new(), Copier::new());
    copier.breaks("t");
    let node = world.node(Registry::new().with("copy", copier.kind()));
    node.submit("{plan: p, stages: [{name: copy, uses: copy}], tasks: [{id: t}]}").await;
    node.ended("p").await;
    copier.mends();
    copier.holds("t", 0);
    node.does(crate::support::of_task("t"), crate::support::RETRY).await;
    copier.until_runs("t", &[50, 0]).await;
    let stored = node.stored("t").await;
    assert!(stored.progress.is_none_or(|said| said == (0, ROWS)), "{:?}", stored.progress);
    assert_eq!(live(&node, "t").await.percent, 0.0);
}
