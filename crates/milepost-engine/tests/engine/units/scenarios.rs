//! Pause and resume, a crash, a failure: what of three tables runs again, and from where.

use milepost_core::failure::ErrorType;
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};

use crate::support::{Copier, Node, World, error_type, of_plan};

/// Three tables, so many at once.
fn three(at_once: u32) -> String {
    format!(
        "{{plan: p, max_concurrency: {at_once}, stages: [{{name: copy, uses: copy}}], tasks: [{{id: a}}, {{id: b}}, {{id: c}}]}}"
    )
}

fn registry(copier: &Copier) -> Registry {
    Registry::new().with("copy", copier.kind())
}

async fn seen(node: &Node) -> [(TaskStatus, f64); 3] {
    [node.seen("a").await, node.seen("b").await, node.seen("c").await]
}

#[tokio::test(start_paused = true)]
async fn scenario_1_a_paused_unit_keeps_its_percentage_and_begins_anew_when_it_is_resumed() {
    use TaskStatus::{Completed, Paused, Pending, Running};
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("b", 50);
    let node = world.node(registry(&copier));
    node.submit(&three(1)).await;
    node.until_percent("b", 50.0).await;
    assert_eq!(seen(&node).await, [(Completed, 100.0), (Running, 50.0), (Pending, 0.0)]);

    node.does(of_plan("p"), Verb::Pause).await;
    assert_eq!(seen(&node).await, [(Completed, 100.0), (Paused, 50.0), (Pending, 0.0)], "at once, in mid-table");
    assert_eq!(node.plan("p").await.status, PlanStatus::Paused);

    copier.holds("b", 0);
    node.does(of_plan("p"), Verb::Resume).await;
    copier.until_runs("b", &[50, 0]).await;
    assert_eq!(seen(&node).await[1..], [(Running, 0.0), (Pending, 0.0)], "nothing is left of the 50 %");
    copier.lets_go();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((copier.runs("a"), copier.runs("b"), copier.runs("c")), (vec![100], vec![50, 100], vec![100]));
    assert_eq!(node.count("b", "STAGE_STARTED copy 1").await, 2, "the same attempt, once more");
}

#[tokio::test(start_paused = true)]
async fn scenario_2_after_a_crash_units_that_ran_begin_anew_and_completed_ones_do_not_run() {
    use TaskStatus::{Completed, Running};
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("b", 80);
    copier.holds("c", 30);
    let node = world.node(registry(&copier));
    node.submit(&three(3)).await;
    node.ended_task("a").await;
    node.until_percent("b", 80.0).await;
    node.until_percent("c", 30.0).await;
    assert_eq!(seen(&node).await, [(Completed, 100.0), (Running, 80.0), (Running, 30.0)]);

    let (world, after) = (world.crashed(), Copier::new());
    after.holds("b", 0);
    after.holds("c", 0);
    let node = world.node(registry(&after));
    after.until_runs("b", &[0]).await;
    after.until_runs("c", &[0]).await;
    assert_eq!(seen(&node).await, [(Completed, 100.0), (Running, 0.0), (Running, 0.0)]);
    after.lets_go();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((after.runs("a"), after.runs("b"), after.runs("c")), (vec![], vec![100], vec![100]));
}

#[tokio::test(start_paused = true)]
async fn scenario_3_a_failed_unit_waits_for_its_reset_and_runs_when_the_plan_goes_on() {
    use TaskStatus::{Completed, Failed, Pending};
    let (world, copier) = (World::new(), Copier::new());
    copier.breaks("b");
    let node = world.node(registry(&copier));
    // The plan stands still with its first failure, so that C has not run.
    node.submit(&three(1).replace("plan: p,", "plan: p, on_task_failure: pause,")).await;
    node.until_plan("p", PlanStatus::Paused).await;
    assert_eq!(seen(&node).await.map(|(status, _)| status), [Completed, Failed, Pending]);
    let failed = node.task("b").await;
    assert_eq!(error_type(&failed), ErrorType::Network);
    assert_eq!(failed.failure().unwrap().cause.reason, "connection reset by peer");

    copier.mends();
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 1, "it answers how many");
    assert_eq!(seen(&node).await, [(Completed, 100.0), (Pending, 0.0), (Pending, 0.0)], "and starts nothing");
    assert_eq!(copier.runs("b"), [50]);

    node.does(of_plan("p"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((copier.runs("a"), copier.runs("b"), copier.runs("c")), (vec![100], vec![50, 100], vec![100]));
}

#[tokio::test(start_paused = true)]
async fn scenario_3_a_failed_unit_stops_no_other_and_after_its_reset_only_it_runs_at_the_next_start() {
    let (world, copier) = (World::new(), Copier::new());
    copier.breaks("b");
    let node = world.node(registry(&copier));
    node.submit(&three(1)).await;
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.completed, row.counts.failed), (PlanStatus::Failed, 2, 1));

    copier.mends();
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 1);
    assert_eq!(node.plan("p").await.status, PlanStatus::Ready, "it waits for a start");
    assert_eq!(node.seen("b").await, (TaskStatus::Pending, 0.0));
    node.does(of_plan("p"), Verb::Start).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((copier.runs("a"), copier.runs("b"), copier.runs("c")), (vec![100], vec![50, 100], vec![100]));
}
