//! The operator's verbs on plans, and what becomes of a plan by itself.

use milepost_core::plan::PlanCommand;
use milepost_core::task::{By, PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};
use milepost_store::{PlanChange, Resubmit, Start, StoreError};

use crate::support::{DAWN, Faulty, Flaky, Gate, Journal, RETRY, World, of_plan, of_task, plan, plan_id};

fn many(count: usize) -> String {
    let tasks: Vec<String> = (0..count).map(|i| format!("{{id: t{i}, tenant: x{i}}}")).collect();
    format!(
        "{{plan: p, max_concurrency: 50, stages: [{{name: s, uses: gate}}, {{name: e, uses: gate}}], tasks: [{}]}}",
        tasks.join(",")
    )
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_ready_until_it_is_started() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let text = "{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: t}]}";
    node.engine.submit(plan(text), Start::Later, Resubmit::Same).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!((node.plan("p").await.status, journal.calls().len()), (PlanStatus::Ready, 0));
    node.does(of_plan("p"), Verb::Start).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert!(node.refuses(of_plan("p"), Verb::Start).await.contains("it is COMPLETED"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_plan_pauses_its_running_tasks_and_leaves_the_others_pending() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(&many(60)).await;
    gate.inside(50).await;
    assert_eq!(node.does(of_plan("p"), Verb::Pause).await, 50);
    gate.open();
    node.idle().await;
    let row = node.plan("p").await;
    assert_eq!((row.status, row.counts.paused, row.counts.pending), (PlanStatus::Paused, 50, 10));
    assert_eq!(gate.all().len(), 50);
    assert_eq!(node.does(of_plan("p"), Verb::Resume).await, 50);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(gate.all().len(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_plan_that_arrives_again_once_the_plan_has_changed_is_not_made() {
    let (world, gate, flaky) = (World::new(), Gate::shut(), Flaky::default());
    flaky.fail("s", 1);
    let store = world.store();
    let line = Faulty::over(store.clone());
    let node = world.node_on(line.clone(), Registry::new().with("flaky", flaky.kind()).with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: flaky}, {name: e, uses: gate}], tasks: [{id: t}]}").await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Failed);
    assert!(node.refuses(of_plan("p"), Verb::Cancel).await.contains("it is FAILED"));
    node.does(of_plan("p"), RETRY).await;
    gate.inside(1).await;
    // It was refused, and would be taken now.
    let cancel = line.last_change_arrives_again().await;
    assert!(matches!(cancel, Err(StoreError::PlanConflict { .. })), "{cancel:?}");
    node.does(of_plan("p"), Verb::Pause).await;
    // By another line than this one.
    let (plan, command, by) = (plan_id("p"), PlanCommand::Resume, By::new("tester"));
    store.change_plan(PlanChange { plan, command, by, expected: None, now: DAWN }).await.expect("a paused plan");
    let pause = line.last_change_arrives_again().await;
    assert!(matches!(pause, Err(StoreError::PlanConflict { .. })), "{pause:?}");
    assert_eq!(node.plan("p").await.status, PlanStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_plan_ends_all_of_its_tasks_and_then_itself() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(&many(1200)).await;
    gate.inside(50).await;
    assert_eq!(node.does(of_plan("p"), Verb::Cancel).await, 1200);
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.cancelled), (PlanStatus::Cancelled, 1200));
    assert!(node.engine.store().locks().await.unwrap().is_empty());
    assert_eq!(gate.now_inside(), [""; 0]);
    assert!(node.refuses(of_plan("p"), Verb::Resume).await.contains("it is CANCELLED"));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_end_of_a_cancelled_plan_is_told_when_its_last_task_has_ended() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(&many(3)).await;
    gate.inside(3).await;
    let engine = node.engine.clone();
    let waiting =
        tokio::spawn(
            async move { engine.wait_for_plan(&crate::support::plan_id("p"), |row| row.ended_at.is_some()).await },
        );
    tokio::task::yield_now().await;
    node.does(of_plan("p"), Verb::Cancel).await;
    let row = crate::support::bounded("the end", waiting).await.unwrap().unwrap();
    assert_eq!(row.counts.cancelled, 3);
}

#[tokio::test(start_paused = true)]
async fn reset_failed_answers_how_many_and_leaves_an_ended_plan_ready_for_a_start() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("s", 2);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    let text = "{plan: p, max_concurrency: 1, stages: [{name: s, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: a}, {id: b}, {id: c}]}";
    assert_eq!(node.run(text).await.status, PlanStatus::Failed);
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 2);
    let row = node.plan("p").await;
    assert_eq!((row.status, row.counts.pending, row.counts.completed), (PlanStatus::Ready, 2, 1));
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 0);
    node.does(of_plan("p"), Verb::Start).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 0, "nothing failed: zero is a good answer");
}

#[tokio::test(start_paused = true)]
async fn resetting_a_plan_that_failed_without_failed_tasks_leaves_it_ended() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: t}]}").await;
    node.does(of_task("t"), Verb::Cancel).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Failed);
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 0);
    assert_eq!(node.plan("p").await.status, PlanStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_nothing_left_to_run_ends_even_if_it_was_never_started() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let text = "{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: t}]}";
    node.engine.submit(plan(text), Start::Later, Resubmit::Same).await.unwrap();
    node.does(of_task("t"), Verb::Cancel).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_an_ended_plan_runs_its_failed_tasks_at_once_and_no_other() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("s", 2);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    node.run("{plan: p, max_concurrency: 1, stages: [{name: s, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: a}, {id: b}, {id: c}]}").await;
    assert_eq!(node.does(of_plan("p"), RETRY).await, 2);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(flaky.journal.calls(), ["a/s/1", "b/s/1", "c/s/1", "a/s/1", "b/s/1"]);
    assert!(node.refuses(of_plan("p"), RETRY).await.contains("no failed or interrupted task"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_touches_no_other() {
    let (world, flaky, gate) = (World::new(), Flaky::default(), Gate::shut());
    flaky.fail("s", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()).with("gate", gate.kind()));
    node.submit("{plan: p, defaults: {retry: {max_attempts: 1}}, tasks: [{id: a, stages: [{name: g, uses: gate}]}, {id: b, stages: [{name: s, uses: flaky}]}]}").await;
    node.until_status("b", TaskStatus::Failed).await;
    gate.inside(1).await;
    assert_eq!(gate.cancelled(), [""; 0]);
    gate.open();
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.completed, row.counts.failed), (PlanStatus::Failed, 1, 1));
}

const PAUSING: &str =
    "{plan: p, on_task_failure: pause, max_concurrency: 2, defaults: {retry: {max_attempts: 1}}, tasks: [
  {id: a, stages: [{name: g, uses: gate}, {name: e, uses: gate}]},
  {id: b, stages: [BAD]},
  {id: c, stages: [{name: g, uses: gate}]}]}";

#[tokio::test(start_paused = true)]
async fn on_task_failure_pause_pauses_the_plan_and_its_running_tasks() {
    let (world, flaky, gate) = (World::new(), Flaky::default(), Gate::shut());
    flaky.fail("s", 1);
    let node = world.node(Registry::new().with("flaky", flaky.kind()).with("gate", gate.kind()));
    node.submit(&PAUSING.replace("BAD", "{name: s, uses: flaky}")).await;
    node.until_plan("p", PlanStatus::Paused).await;
    node.until("a", |task| task.pause_requested().is_some()).await;
    gate.open();
    node.until_status("a", TaskStatus::Paused).await;
    assert_eq!(node.status("c").await, TaskStatus::Pending);
    assert_eq!(gate.all(), ["a/g/1"]);
    node.does(of_plan("p"), Verb::Resume).await;
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Failed, 2));
}

#[tokio::test(start_paused = true)]
async fn on_task_failure_pause_also_holds_for_a_task_that_fails_in_being_claimed() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit(&PAUSING.replace("BAD", "{name: s, uses: gate, if: 'input.a.b.c'}")).await;
    node.until_status("b", TaskStatus::Failed).await;
    node.until_plan("p", PlanStatus::Paused).await;
    node.until("a", |task| task.pause_requested().is_some()).await;
    gate.open();
    node.until_status("a", TaskStatus::Paused).await;
    assert_eq!(node.status("c").await, TaskStatus::Pending);
}
