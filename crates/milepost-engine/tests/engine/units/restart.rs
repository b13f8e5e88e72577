//! What becomes of a unit when its node is gone and another starts: COMPLETED, PENDING, FAILED and PAUSED stay, RUNNING
//! begins anew.

use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::{Registry, Verb};
use milepost_store::{Resubmit, Start};

use crate::support::{Copier, World, of_plan, of_task, plan};

const UNITS: [&str; 5] = ["completed", "failed", "paused", "running", "pending"];

fn five(recovery: &str) -> String {
    let tasks: Vec<String> = UNITS.iter().map(|id| format!("{{id: {id}}}")).collect();
    format!(
        "{{plan: p, recovery: {recovery}, max_concurrency: 1, stages: [{{name: copy, uses: copy}}], tasks: [{}]}}",
        tasks.join(", ")
    )
}

fn registry(copier: &Copier) -> Registry {
    Registry::new().with("copy", copier.kind())
}

/// A crash with a unit in each of the five states.
async fn crashed(recovery: &str) -> World {
    let (world, copier) = (World::new(), Copier::new());
    copier.breaks("failed");
    copier.holds("paused", 50);
    copier.holds("running", 80);
    let node = world.node(registry(&copier));
    node.submit(&five(recovery)).await;
    node.until_percent("paused", 50.0).await;
    node.does(of_task("paused"), Verb::Pause).await;
    node.until_percent("running", 80.0).await;
    world.crashed()
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_completed_failed_and_paused_units_stay_and_a_running_one_begins_anew() {
    let (world, copier) = (crashed("auto").await, Copier::new());
    copier.holds("running", 0);
    let node = world.node(registry(&copier));
    copier.until_runs("running", &[0]).await;
    assert_eq!(node.seen("completed").await, (TaskStatus::Completed, 100.0));
    assert_eq!(node.seen("failed").await, (TaskStatus::Failed, 0.0));
    assert_eq!(node.seen("paused").await, (TaskStatus::Paused, 50.0));
    assert_eq!(node.seen("running").await, (TaskStatus::Running, 0.0));
    assert_eq!(node.seen("pending").await, (TaskStatus::Pending, 0.0));

    copier.lets_go();
    node.ended_task("pending").await;
    for stays in ["completed", "failed", "paused"] {
        assert_eq!(copier.runs(stays), [0; 0], "{stays} does not run");
    }
    assert_eq!((copier.runs("running"), copier.runs("pending")), (vec![100], vec![100]));
    assert_eq!(node.plan("p").await.status, PlanStatus::Running, "one waits to be resumed");
    node.does(of_task("paused"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Failed);
    assert_eq!(node.does(of_plan("p"), Verb::ResetFailed).await, 1);
    node.does(of_plan("p"), Verb::Start).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert!(UNITS[1..].iter().all(|unit| copier.runs(unit) == [100]), "each of the others once, from zero");
}

#[tokio::test(start_paused = true)]
async fn with_manual_recovery_nothing_runs_until_a_person_says_so_of_a_unit_or_of_the_plan() {
    let (world, copier) = (crashed("manual").await, Copier::new());
    let node = world.node(registry(&copier));
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let stored = node.stored("running").await;
    assert_eq!((stored.task.status(), stored.orphaned), (TaskStatus::Running, true));
    assert_eq!(node.seen("completed").await, (TaskStatus::Completed, 100.0));
    assert_eq!(node.seen("failed").await, (TaskStatus::Failed, 0.0));
    assert_eq!(node.seen("paused").await, (TaskStatus::Paused, 50.0));
    assert_eq!(node.seen("pending").await, (TaskStatus::Pending, 0.0));
    assert!(node.plan("p").await.waits_for_person);
    for waits in ["completed", "failed", "paused", "running", "pending"] {
        assert_eq!(copier.runs(waits), [0; 0], "{waits} does not run");
    }
    copier.holds("running", 0);
    node.does(of_task("running"), Verb::Resume).await;
    copier.until_runs("running", &[0]).await;
    assert_eq!(node.seen("running").await, (TaskStatus::Running, 0.0), "from zero");
    copier.lets_go();
    node.ended_task("running").await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(
        (copier.runs("running"), copier.runs("pending")),
        (vec![100], vec![]),
        "of one task it says nothing of others"
    );
    node.does(of_plan("p"), Verb::Start).await;
    node.ended_task("pending").await;
    assert_eq!(copier.runs("pending"), [100]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_ran_when_its_node_crashed_goes_on_and_a_start_is_not_refused() {
    let (world, copier) = (crashed("auto").await, Copier::new());
    copier.holds("running", 0);
    let node = world.node(registry(&copier));
    node.does(of_plan("p"), Verb::Start).await;
    copier.until_runs("running", &[0]).await;
    copier.lets_go();
    node.ended_task("running").await;
    assert_eq!(node.seen("failed").await.0, TaskStatus::Failed, "a start resets nothing");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_submitted_anew_keeps_its_units_states_adds_the_new_and_drops_those_it_no_longer_has() {
    let (world, copier) = (World::new(), Copier::new());
    copier.breaks("b");
    copier.holds("c", 30);
    let node = world.node(registry(&copier));
    let text = |tasks: &str| {
        format!("{{plan: p, max_concurrency: 1, stages: [{{name: copy, uses: copy}}], tasks: [{tasks}]}}")
    };
    node.submit(&text("{id: a}, {id: b}, {id: c}, {id: gone}")).await;
    node.until_percent("c", 30.0).await;
    node.does(of_plan("p"), Verb::Pause).await;
    let anew = plan(&text("{id: a}, {id: b}, {id: c}, {id: new}"));
    let submitted = node.engine.submit(anew, Start::Later, Resubmit::Update).await.expect("an accepted plan");
    assert_eq!((submitted.difference.added, submitted.difference.removed), (1, 1));
    assert_eq!(node.seen("a").await, (TaskStatus::Completed, 100.0));
    assert_eq!(node.seen("b").await.0, TaskStatus::Failed);
    assert_eq!(node.seen("c").await, (TaskStatus::Paused, 30.0));
    assert_eq!(node.seen("new").await, (TaskStatus::Pending, 0.0));
    assert_eq!(node.plan("p").await.counts.total, 4);
}
