//! Tasks to which much has happened: what a backend does so as not to read it all changes nothing of what is read.

use milepost_core::plan::{PlanCommand, WorkflowRef};
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{By, Command, Step, StepKind, Task, TaskStatus};
use serde_json::json;

use crate::model::{EventQuery, StoredTask};
use crate::snapshot::SHORTEST;

use super::Harness;
use super::given::{Scene, fatal, plan, retry, stage, stage_name, success};

fn workflow() -> WorkflowRef {
    WorkflowRef { name: "endless".into(), version: 1 }
}

async fn flow_scene(harness: &dyn Harness) -> Scene<'_> {
    let mut scene = Scene::new(harness).await;
    scene.workflows = [workflow()].into();
    scene.submit(plan("p").workflow(workflow()).task("a")).await;
    scene
}

fn begin(place: usize) -> Command {
    let retry = RetryPolicy::default();
    let (kind, scope, place) = (StepKind::Stage, "".into(), place as u32 + 1);
    let step = Step { kind, scope, place, digest: Some(7), retry, timeout: None, rollback: place % 3 == 0 };
    Command::Begin(vec![(stage_name(&format!("step.{place}")), step)])
}

/// Stages one after the other, and now and then a value, a signal, and a failure that the function handles.
async fn goes_on(scene: &mut Scene<'_>, mut held: StoredTask, stages: usize) -> StoredTask {
    for _ in 0..stages {
        let place = held.task.stages().len();
        if place % 50 == 7 {
            held = scene.does(&held, Command::Remember(vec![(format!("v{place}"), json!(place))])).await;
            let (name, payload, by) = (stage_name("go"), json!({ "place": place }), By::new("ann"));
            held = scene.does(&held, Command::Signal { name, payload, by, id: None }).await;
        }
        held = scene.does(&held, begin(place)).await;
        held = match place % 40 {
            11 => scene.does(&held, fatal(place)).await,
            _ => scene.does(&held, success(place)).await,
        };
    }
    held
}

/// What the whole log makes of the task.
async fn folded(scene: &Scene<'_>, stored: &StoredTask) -> Task {
    let query = EventQuery { task: stored.key.id.clone(), after: 0, limit: usize::MAX };
    let log = scene.store.events(query).await.unwrap();
    assert!(log.iter().map(|event| event.sequence).eq(1..=stored.task.version()), "the log is whole");
    let records = log.iter().skip(1).map(|event| &event.record);
    records.fold(Task::created(stored.task.spec().clone()), |task, record| task.apply(record).unwrap())
}

async fn reads_back_as(scene: &Scene<'_>, task: &Task) {
    let stored = scene.task("a").await;
    assert_eq!(stored.task, *task);
    assert_eq!(folded(scene, &stored).await, *task);
}

pub(super) async fn a_long_log_reads_back_as_the_task_that_its_events_make(harness: &dyn Harness) {
    let mut scene = flow_scene(harness).await;
    let mut held = scene.claim_one("a").await;
    for stages in [100, 260, 700] {
        held = goes_on(&mut scene, held, stages).await;
        reads_back_as(&scene, &held.task).await;
        scene.crash().await;
        reads_back_as(&scene, &held.task).await;
        held = scene.claim_one("a").await;
        reads_back_as(&scene, &held.task).await;
    }
    let last = scene.does(&held, Command::Return(Ok(json!("done")))).await;
    reads_back_as(&scene, &last.task).await;
    assert_eq!(scene.status("a").await, TaskStatus::Completed);
}

pub(super) async fn a_damaged_snapshot_is_passed_over(harness: &dyn Harness) {
    let mut scene = flow_scene(harness).await;
    let held = scene.claim_one("a").await;
    let held = goes_on(&mut scene, held, 400).await;
    scene.damage_snapshots().await;
    reads_back_as(&scene, &held.task).await;
    scene.crash().await;
    reads_back_as(&scene, &held.task).await;
    let held = scene.claim_one("a").await;
    let held = goes_on(&mut scene, held, 10).await;
    reads_back_as(&scene, &held.task).await;
}

pub(super) async fn a_workflow_that_begins_anew_for_ever_reads_back_as_it_was(harness: &dyn Harness) {
    let mut scene = flow_scene(harness).await;
    let mut held = scene.claim_one("a").await;
    for generation in 2..=400 {
        held = goes_on(&mut scene, held, 2).await;
        held = scene.does(&held, Command::Continue(json!(generation))).await;
    }
    held = goes_on(&mut scene, held, 1).await;
    reads_back_as(&scene, &held.task).await;
    scene.crash().await;
    let held = scene.claim_one("a").await;
    let flow = held.task.flow().unwrap();
    assert_eq!((flow.generation(), &**flow.input(), held.task.stages().len()), (400, &json!(400), 1));
    reads_back_as(&scene, &held.task).await;
}

pub(super) async fn a_task_with_a_very_large_image_goes_on(harness: &dyn Harness) {
    let mut scene = flow_scene(harness).await;
    let mut held = scene.claim_one("a").await;
    let value = json!("it's large".repeat(4_000));
    while held.task.version() <= SHORTEST {
        let name = format!("v{}", held.task.version());
        held = scene.does(&held, Command::Remember(vec![(name, value.clone())])).await;
    }
    // Both for those who keep no such image, and for those who do.
    assert!(held.task.image().len() > 19 << 20);
    reads_back_as(&scene, &held.task).await;
    scene.crash().await;
    let held = scene.claim_one("a").await;
    let held = goes_on(&mut scene, held, 2).await;
    reads_back_as(&scene, &held.task).await;
}

pub(super) async fn an_update_folds_a_long_log_over_its_new_stages(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    for _ in 0..130 {
        let held = scene.claim_one("a").await;
        let held = scene.does(&held, fatal(0)).await;
        assert_eq!(held.task.status(), TaskStatus::Failed);
        scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await.unwrap();
    }
    assert!(scene.task("a").await.task.version() > 500);
    scene
        .update(plan("p").stages(vec![stage("zero", &[]), stage("one", &[0]), stage("two", &[1])]).task("a"))
        .await
        .unwrap();
    let stored = scene.task("a").await;
    assert_eq!(stored.task.stages().len(), 3);
    assert_eq!(folded(&scene, &stored).await, stored.task);
}
