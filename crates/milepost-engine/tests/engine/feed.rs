//! What watchers see, and what is kept of what stages say.

use std::time::Duration;

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::stage::{Outcome, Progress, StageCall};
use milepost_engine::{FeedItem, Registry, Verb};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::support::{Answers, Faulty, Gate, Journal, RETRY, World, bounded, kind, of_task, words};

#[tokio::test(start_paused = true)]
async fn state_changes_come_in_the_order_of_the_log_and_none_is_left_out() {
    let (world, flaky) = (World::new(), crate::support::Flaky::default());
    flaky.fail("b", 2);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    let mut feed = node.engine.feed().subscribe();
    node.run(
        "{plan: p, stages: [{name: a, uses: flaky}, {name: b, uses: flaky}, {name: c, uses: flaky}], tasks: [{id: t}]}",
    )
    .await;
    let (mut seen, mut plans) = (vec!["TASK_CREATED".to_owned()], Vec::new());
    loop {
        match feed.try_recv() {
            Ok(FeedItem::Task { records, .. }) => seen.extend(records.iter().map(|record| words(record.event()))),
            Ok(FeedItem::Plan { status, .. }) => plans.push(status),
            Ok(FeedItem::Progress { .. } | FeedItem::Durability { .. }) => {}
            Err(TryRecvError::Empty) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(seen, node.log("t").await);
    assert_eq!(plans, [PlanStatus::Completed]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_given_back_is_shown_and_counted_as_interrupted() {
    is_shown_and_counted_when(Answers::RefusesOnce).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_given_back_by_a_commit_whose_answer_is_lost_is_shown_and_counted_too() {
    is_shown_and_counted_when(Answers::RefusesOnceAndForgetsOnce).await;
}

async fn is_shown_and_counted_when(answers: Answers) {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: a, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.answer(answers);
    gate.let_go(2);
    node.ended("p").await;
    // Also what is still to be found out.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut seen = vec!["TASK_CREATED".to_owned()];
    while let Ok(item) = feed.try_recv() {
        if let FeedItem::Task { records, .. } = item {
            seen.extend(records.iter().map(|record| words(record.event())));
        }
    }
    // The next claim may be answered before the commit that gave it back.
    let mut log = node.log("t").await;
    seen.sort();
    log.sort();
    assert_eq!(seen, log);
    assert_eq!(seen.iter().filter(|line| line.starts_with("TASK_INTERRUPTED")).count(), 1, "{seen:?}");
    let counted = node.engine.meters().readings().tasks;
    assert_eq!(counted.iter().find(|(what, _)| *what == "interrupted").map(|(_, count)| *count), Some(1));
}

#[tokio::test(start_paused = true)]
async fn progress_comes_at_most_four_times_a_second_and_ends_with_the_newest() {
    let world = World::new();
    let busy = kind(|call: StageCall| async move {
        for done in 0..1000 {
            call.reporter.progress(Progress { done, total: 1000 });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Outcome::success()
    });
    let node = world.node(Registry::new().with("busy", busy));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: s, uses: busy}], tasks: [{id: t}]}").await;
    let mut times = Vec::new();
    let mut newest = 0;
    loop {
        match bounded("the next item", feed.recv()).await {
            Ok(FeedItem::Progress { progress, .. }) => {
                let progress = progress.expect("the stage reports");
                assert!(progress.done >= newest);
                newest = progress.done;
                times.push(world.clock.now());
            }
            Ok(FeedItem::Plan { .. }) => break,
            Ok(FeedItem::Task { .. } | FeedItem::Durability { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(newest, 999, "its last word");
    times.pop();
    assert!((30..=40).contains(&times.len()), "{} in ten seconds", times.len());
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]).get() >= 250));
}

/// What the feed said of tasks' progress by now.
fn shown(feed: &mut broadcast::Receiver<FeedItem>) -> Vec<(usize, usize, f64)> {
    let mut shown = Vec::new();
    loop {
        match feed.try_recv() {
            Ok(FeedItem::Progress { done, stages, percent, .. }) => shown.push((done, stages, percent)),
            Ok(FeedItem::Task { .. } | FeedItem::Durability { .. } | FeedItem::Plan { .. }) => {}
            Err(TryRecvError::Empty) => return shown,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_stages_that_report_at_once_show_the_task_at_most_four_times_a_second() {
    let world = World::new();
    let busy = kind(|call: StageCall| async move {
        for done in 0..1000 {
            call.reporter.progress(Progress { done, total: 1000 });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Outcome::success()
    });
    let brief = kind(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Outcome::success()
    });
    let node = world.node(Registry::new().with("busy", busy).with("brief", brief));
    let mut feed = node.engine.feed().subscribe();
    // A chain of brief stages beside the busy ones must not keep them from being heard either.
    let brief: Vec<String> = (0..40).map(|i| format!("{{name: b{i}, uses: brief, needs: [NEED]}}")).collect();
    let brief = brief.iter().enumerate().map(|(i, text)| match i {
        0 => text.replace("NEED", ""),
        i => text.replace("NEED", &format!("b{}", i - 1)),
    });
    let busy = (0..3).map(|i| format!("{{name: s{i}, uses: busy, needs: []}}"));
    let stages: Vec<String> = busy.chain(brief).collect();
    node.submit(&format!("{{plan: p, stages: [{}], tasks: [{{id: t}}]}}", stages.join(","))).await;
    let (mut times, mut newest) = (Vec::new(), 0.0);
    loop {
        match bounded("the next item", feed.recv()).await {
            Ok(FeedItem::Progress { percent, .. }) => {
                assert!(percent >= newest, "{percent} after {newest}");
                newest = percent;
                times.push(world.clock.now());
            }
            Ok(FeedItem::Plan { .. }) => break,
            Ok(FeedItem::Task { .. } | FeedItem::Durability { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    // Each of the busy ones has a last word.
    times.truncate(times.len() - 3);
    assert!((30..=41).contains(&times.len()), "{} in ten seconds", times.len());
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]).get() >= 250));
}

#[tokio::test(start_paused = true)]
async fn a_running_task_shows_every_ten_seconds_how_far_it_is() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    let mut feed = node.engine.feed().subscribe();
    node.submit("{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert_eq!(shown(&mut feed), [], "the first run of a task has nothing to make up for");
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(shown(&mut feed), [(1, 2, 50.0); 3]);
    gate.open();
    node.ended("p").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(shown(&mut feed), []);
}

#[tokio::test(start_paused = true)]
async fn a_retry_shows_the_checkpoints_progress_exactly_once_before_its_first_heartbeat() {
    let (world, gate, flaky) = (World::new(), Gate::shut(), crate::support::Flaky::default());
    flaky.fail("b", 1);
    let node = world.node(Registry::new().with("gate", gate.kind()).with("flaky", flaky.kind()));
    let stages = "[{name: a, uses: flaky}, {name: b, uses: flaky}, {name: c, uses: gate}, {name: d, uses: gate}]";
    let mut feed = node.engine.feed().subscribe();
    node.run(&format!("{{plan: p, defaults: {{retry: {{max_attempts: 1}}}}, stages: {stages}, tasks: [{{id: t}}]}}"))
        .await;
    assert_eq!(shown(&mut feed), []);
    node.does(of_task("t"), RETRY).await;
    gate.inside(1).await;
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert_eq!(shown(&mut feed), [(1, 4, 25.0)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shown(&mut feed), [(2, 4, 50.0)], "the heartbeat");
    // A pause and a resume go on from a checkpoint as well.
    node.does(of_task("t"), Verb::Pause).await;
    gate.let_go(1);
    node.until_status("t", TaskStatus::Paused).await;
    node.does(of_task("t"), Verb::Resume).await;
    gate.inside(1).await;
    assert_eq!(shown(&mut feed), [(3, 4, 75.0)]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_never_looks_slows_nobody_down_and_is_told_what_it_missed() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let mut feed = node.engine.feed().subscribe();
    let tasks: Vec<String> = (0..1500).map(|i| format!("{{id: t{i}}}")).collect();
    let stages = "[{name: a, uses: noop}, {name: b, uses: noop}, {name: c, uses: noop}]";
    let row =
        node.run(&format!("{{plan: p, max_concurrency: 100, stages: {stages}, tasks: [{}]}}", tasks.join(","))).await;
    assert_eq!(row.counts.completed, 1500);
    assert!(matches!(feed.recv().await, Err(RecvError::Lagged(_))));
}

fn talking(gate: &Gate) -> Registry {
    let inner = gate.kind();
    let talks = kind(move |call: StageCall| {
        let inner = inner.clone();
        async move {
            call.reporter.output(b"one ");
            tokio::time::sleep(Duration::from_millis(600)).await;
            call.reporter.output(b"two ");
            let outcome = inner.run(call.clone()).await;
            call.reporter.output(b"three");
            outcome
        }
    });
    Registry::new().with("talks", talks)
}

#[tokio::test(start_paused = true)]
async fn output_can_be_read_while_the_attempt_runs_and_all_of_it_when_it_has_ended() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(talking(&gate));
    node.submit("{plan: p, stages: [{name: s, uses: talks}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.output("t", "s").await, b"one two ");
    gate.open();
    node.ended("p").await;
    assert_eq!(node.output("t", "s").await, b"one two three");
}

#[tokio::test(start_paused = true)]
async fn output_that_could_not_be_stored_at_once_is_stored_later_and_in_order() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(world.store());
    let node = world.node_on(store.clone(), talking(&gate));
    node.submit("{plan: p, stages: [{name: s, uses: talks}], tasks: [{id: t}]}").await;
    node.until_status("t", TaskStatus::Running).await;
    store.answer(Answers::Away);
    store.refused().await;
    store.answer(Answers::Truly);
    gate.inside(1).await;
    gate.open();
    node.ended("p").await;
    assert_eq!(node.output("t", "s").await, b"one two three");
}

#[tokio::test(start_paused = true)]
async fn output_is_bounded_and_the_output_of_a_cancelled_attempt_is_kept() {
    let world = World::new();
    let chatty = kind(|call: StageCall| async move {
        for _ in 0..4000 {
            call.reporter.output(&[b'x'; 1000]);
        }
        call.reporter.output(b"the end");
        call.cancel.cancelled().await;
        call.reporter.output(b" and the last word");
        Outcome::success()
    });
    let node = world.node(Registry::new().with("chatty", chatty));
    node.run("{plan: p, stages: [{name: s, uses: chatty, timeout: 1s, retry: {max_attempts: 1}}], tasks: [{id: t}]}")
        .await;
    let output = node.output("t", "s").await;
    assert!((300_000..500_000).contains(&output.len()), "{}", output.len());
    assert!(output.ends_with(b"the end and the last word"));
}
