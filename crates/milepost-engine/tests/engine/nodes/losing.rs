//! A node that dies, freezes, is cut off or replaced, and those that go on without it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{By, PlanStatus, TaskStatus};
use milepost_engine::Registry;
use milepost_engine::stage::Outcome;
use milepost_store::PlanChange;
use tokio::sync::Semaphore;

use crate::support::{Cluster, DAWN, Diary, Flaky, Gate, Journal, bounded, flow, kind, plan_id};

const TWO_STAGES: &str =
    "{plan: p, max_concurrency: 10, stages: [{name: s, uses: gate}, {name: e, uses: noop}], tasks: [{id: a}, {id: b}]}";

fn registry(gate: &Gate, journal: &Journal) -> Registry {
    Registry::new().with("gate", gate.kind()).with("noop", journal.kind())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_beating_loses_its_tasks_and_they_end_elsewhere_recorded_once() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let two = cluster.node("two", &registry);
    one.cut();
    let cut_at = tokio::time::Instant::now();
    // The gate holds both of them twice: the first node still believes that it runs them.
    gate.inside(4).await;
    let took = cut_at.elapsed();
    assert!(took <= Duration::from_secs(16), "taken over after {took:?}");
    gate.open();
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
    for id in ["a", "b"] {
        assert_eq!(two.node.count(id, "STAGE_COMPLETED s 1").await, 1);
        assert_eq!(two.node.count(id, "TASK_COMPLETED").await, 1);
        assert_eq!(two.node.count(id, "TASK_INTERRUPTED").await, 1);
        assert_eq!(two.node.task(id).await.node().map(ToString::to_string).as_deref(), Some("two"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_fence_grows_when_another_node_takes_a_task_on() {
    let cluster = Cluster::new();
    let fences: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = fences.clone();
    let registry = Registry::new().with(
        "noting",
        kind(move |call| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push(call.fence);
                if seen.lock().unwrap().len() == 1 {
                    call.cancel.cancelled().await;
                }
                Outcome::success()
            }
        }),
    );
    let one = cluster.node("one", &registry);
    one.node.submit("{plan: p, stages: [{name: s, uses: noting}], tasks: [{id: t}]}").await;
    one.node.until("t", |task| task.status() == TaskStatus::Running).await;
    let two = cluster.node("two", &registry);
    one.cut();
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
    let fences = fences.lock().unwrap().clone();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_late_commits_nothing_ends_its_attempts_and_is_a_member_again() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let two = cluster.node("two", &registry);
    one.cut();
    gate.inside(4).await;
    one.mend();
    one.node.idle().await;
    assert_eq!(gate.cancelled().len(), 2, "the attempts of the late node were ended");
    for id in ["a", "b"] {
        let task = one.node.task(id).await;
        assert_eq!((task.status(), task.done().len(), task.interrupted()), (TaskStatus::Running, 0, false));
    }
    two.node.stop().await;
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn a_node_hears_that_it_lost_its_lease_also_if_the_first_answer_that_says_so_is_lost() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let _two = cluster.node("two", &registry);
    one.cut();
    gate.inside(4).await;
    one.line.forgets_a_beat();
    one.mend();
    let mended_at = tokio::time::Instant::now();
    one.node.idle().await;
    let took = mended_at.elapsed();
    assert!(took <= Duration::from_secs(6), "it heard of it at the next beat, after {took:?}");
    assert_eq!(gate.cancelled().len(), 2, "the attempts of the late node were ended");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_did_not_run_for_longer_than_its_lease_ends_its_attempts_before_it_asks() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let one = cluster.node("one", &registry(&gate, &journal));
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    // As when the machine is suspended: nothing runs, and the clock is another when it wakes.
    tokio::time::advance(Duration::from_secs(60)).await;
    gate.came(4).await;
    assert_eq!(gate.cancelled().len(), 2);
    gate.open();
    // Nobody had missed it, so it gave its tasks back and went on with them.
    assert_eq!(one.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(one.node.count("a", "TASK_INTERRUPTED").await, 1, "{:?}", one.node.log("a").await);
    assert_eq!(one.node.count("a", "STAGE_COMPLETED s 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_due_on_a_lease_that_may_have_run_out_waits_until_the_node_knows() {
    let (cluster, flaky) = (Cluster::new(), Flaky::default());
    flaky.fail("s", 1);
    let one = cluster.node("one", &Registry::new().with("flaky", flaky.kind()));
    let retry = "retry: {max_attempts: 2, strategy: fixed, base: 25s, jitter: false}";
    one.node.submit(&format!("{{plan: p, stages: [{{name: s, uses: flaky, {retry}}}], tasks: [{{id: t}}]}}")).await;
    one.node.until("t", |task| task.next_due().is_some()).await;
    one.cut();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(flaky.journal.calls().len(), 1, "another node might run its tenant's next task by now");
    one.mend();
    // Nobody had missed it, so the task is still its own.
    assert_eq!(one.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((flaky.journal.calls().len(), one.node.count("t", "TASK_INTERRUPTED").await), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_due_on_a_lease_that_may_have_run_out_waits_as_well() {
    let (cluster, diary) = (Cluster::new(), Diary::default());
    let noting = diary.clone();
    let sleeper = flow("sleeper", move |ctx, input| {
        let diary = noting.clone();
        async move {
            ctx.sleep("rest", Duration::from_secs(25)).await?;
            ctx.stage("after").run(|| async { diary.noted("after") }).await?;
            Ok(input)
        }
    });
    let one = cluster.node("one", &sleeper.registry());
    one.node.begin(&sleeper, "f", serde_json::json!(1)).await;
    one.node.until("f", |task| task.next_due().is_some()).await;
    one.line.beats_take(Duration::from_secs(35));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(diary.lines(), [""; 0]);
    one.line.beats_take(Duration::ZERO);
    assert_eq!(one.node.outcome("f").await.unwrap(), serde_json::json!(1));
    assert_eq!(diary.lines(), ["after"]);
}

/// Servers judge a lease by their clock whenever a task is read, and the node's own beat is what it is forgiven by.
#[tokio::test(start_paused = true)]
async fn what_a_node_let_go_of_before_it_was_forgiven_is_given_back_too() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let one = cluster.node("one", &registry(&gate, &journal));
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    one.line.beats_take(Duration::from_secs(5));
    one.line.looks_gone_until_it_beats();
    tokio::time::advance(Duration::from_secs(60)).await;
    gate.came(4).await;
    gate.open();
    assert_eq!(one.node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_name_another_process_has_taken_stops_and_says_why() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let old = cluster.node("one", &registry);
    old.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let new = cluster.node("one", &registry);
    // Its tasks are the new one's at once.
    gate.came(4).await;
    let why = bounded("the old one steps down", old.node.engine.ousted()).await;
    assert!(why.contains("another process has taken the place of node one"), "{why}");
    old.node.idle().await;
    assert_eq!(gate.cancelled().len(), 2);
    old.node.stop().await;
    gate.open();
    assert_eq!(new.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(new.node.count("a", "STAGE_COMPLETED s 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_hangs_does_not_keep_the_next_from_going_out() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let two = cluster.node("two", &registry);
    // Eight seconds hold up one beat, or two.
    for _ in 0..5 {
        one.cut();
        tokio::time::sleep(Duration::from_secs(8)).await;
        one.mend();
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    assert_eq!((gate.all().len(), two.node.engine.in_hand()), (2, 0));
    gate.open();
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_waits_for_a_person_is_left_interrupted() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit("{plan: p, recovery: manual, stages: [{name: s, uses: gate}], tasks: [{id: a}]}").await;
    gate.inside(1).await;
    let two = cluster.node("two", &registry);
    one.cut();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(two.node.stored("a").await.orphaned);
    assert_eq!(gate.all().len(), 1);
    gate.open();
    two.node.does(crate::support::of_task("a"), crate::support::RETRY).await;
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_stop_in_time_ends_its_attempts_and_leaves_them_to_others_at_once() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = registry(&gate, &journal);
    let one = cluster.node("one", &registry);
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    let two = cluster.node("two", &registry);
    assert!(!one.node.engine.stop_within(Duration::from_secs(2)).await);
    assert_eq!(gate.cancelled().len(), 2, "they ended before others could begin them");
    let left_at = tokio::time::Instant::now();
    gate.came(4).await;
    let took = left_at.elapsed();
    assert!(took <= Duration::from_secs(2), "taken over after {took:?}");
    gate.open();
    assert_eq!(two.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(two.node.count("a", "STAGE_COMPLETED s 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_stop_in_time_leaves_once_attempts_that_take_long_to_end_have_ended() {
    let (cluster, diary, began) = (Cluster::new(), Diary::default(), Arc::new(Semaphore::new(0)));
    // As a command that cleans up when it is told to end, and is killed if that takes too long.
    let tidy = |node: &'static str| {
        let (diary, began) = (diary.clone(), began.clone());
        kind(move |call| {
            let (diary, began) = (diary.clone(), began.clone());
            async move {
                diary.note(format!("{node} begins"));
                began.add_permits(1);
                call.cancel.cancelled().await;
                tokio::time::sleep(Duration::from_secs(7)).await;
                diary.note(format!("{node} ends"));
                Outcome::success()
            }
        })
    };
    let one = cluster.node("one", &Registry::new().with("tidy", tidy("one")));
    one.node.submit("{plan: p, stages: [{name: s, uses: tidy}], tasks: [{id: a}]}").await;
    began.acquire().await.unwrap().forget();
    let _two = cluster.node("two", &Registry::new().with("tidy", tidy("two")));
    assert!(!one.node.engine.stop_within(Duration::from_secs(2)).await);
    let left_at = tokio::time::Instant::now();
    bounded("the other node", began.acquire()).await.unwrap().forget();
    let took = left_at.elapsed();
    assert!(took <= Duration::from_secs(2), "taken over after {took:?}");
    assert_eq!(diary.lines(), ["one begins", "one ends", "two begins"]);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_three_nodes_fails_no_task_and_runs_no_stage_twice() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let slow = {
        let journal = journal.clone();
        crate::support::kind(move |call| {
            journal.note(&call);
            async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                milepost_engine::stage::Outcome::success()
            }
        })
    };
    let registry = Registry::new().with("slow", slow);
    let start = |name: &str| cluster.node_with(name, &registry, |options| options.capacity = 8);
    let mut members: Vec<_> = ["one", "two", "three"].into_iter().map(start).collect();
    let tasks: Vec<String> = (0..60).map(|i| format!("{{id: t{i}}}")).collect();
    let text = format!(
        "{{plan: p, max_concurrency: 60, stages: [{{name: a, uses: slow}}, {{name: b, uses: slow}}, {{name: c, uses: slow}}], tasks: [{}]}}",
        tasks.join(",")
    );
    members[0].node.submit(&text).await;
    for (index, name) in ["one", "two", "three"].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_secs(3)).await;
        members[index].node.stop().await;
        members[index] = start(name);
    }
    let row = members[2].node.ended("p").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Completed, 60));
    let mut calls = journal.calls();
    calls.sort();
    calls.dedup();
    assert_eq!((calls.len(), journal.calls().len()), (180, 180));
}

#[tokio::test(start_paused = true)]
async fn what_the_cancelling_of_a_plan_did_not_get_to_is_cancelled_by_a_node_within_a_minute() {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let one = cluster.node("one", &registry(&gate, &journal));
    one.node.submit(TWO_STAGES).await;
    gate.inside(2).await;
    // The plan alone, as when whoever cancels it dies before it has come to its tasks.
    let plan = plan_id("p");
    let change = PlanChange { plan, command: PlanCommand::Cancel, by: By::new("tester"), expected: None, now: DAWN };
    one.node.engine.store().change_plan(change).await.expect("a plan that runs");
    let begun = tokio::time::Instant::now();
    for id in ["a", "b"] {
        one.sees(id, |task| task.status() == TaskStatus::Cancelled).await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(62), "{:?}", begun.elapsed());
}
