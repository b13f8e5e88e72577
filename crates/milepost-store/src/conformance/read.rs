//! Questions and answers.

use std::sync::Arc;

use milepost_core::task::{Command, TaskStatus, decide};
use milepost_core::time::Millis;
use serde_json::json;

use crate::error::StoreError;
use crate::model::{Commit, EventQuery, LogChunk, LogQuery, Note, PlanQuery, StoredTask, TaskQuery, TasksOf, Wake};

use super::Harness;
use super::given::{Scene, ann, failure, fatal, plan, plan_id, stage, stage_name, success, task_id, tenant};

fn chunk(scene: &Scene<'_>, stage: &str, attempt: u32, text: &str) -> LogChunk {
    LogChunk { stage: stage_name(stage), attempt, at: scene.now, bytes: text.as_bytes().to_vec() }
}

fn texts(chunks: &[LogChunk]) -> Vec<String> {
    chunks.iter().map(|chunk| String::from_utf8(chunk.bytes.clone()).unwrap()).collect()
}

pub(super) async fn unknown_ids_are_none_or_not_found(harness: &dyn Harness) {
    let scene = Scene::with(harness, plan("p").task("a")).await;
    let store = &scene.store;
    assert_eq!(store.plan(&plan_id("nowhere")).await.unwrap(), None);
    assert_eq!(store.definition(&plan_id("nowhere")).await.unwrap(), None);
    assert!(store.task(&task_id("nowhere")).await.unwrap().is_none());
    let tasks_of = |of| TaskQuery { of, statuses: vec![], after: None, limit: 10 };
    let tasks = store.tasks(tasks_of(TasksOf::Plan(plan_id("nowhere")))).await;
    assert!(matches!(tasks, Err(StoreError::NotFound { what: "plan", .. })), "{tasks:?}");
    let events = store.events(EventQuery { task: task_id("nowhere"), after: 0, limit: 10 }).await;
    assert!(matches!(events, Err(StoreError::NotFound { what: "task", .. })), "{events:?}");
    let logs = store.logs(LogQuery { task: task_id("nowhere"), stage: None, attempt: None }).await;
    assert!(matches!(logs, Err(StoreError::NotFound { what: "task", .. })), "{logs:?}");
    // A tenant is only a word: nobody has used this one.
    let tasks = store.tasks(tasks_of(TasksOf::Tenant(tenant("nowhere")))).await.unwrap();
    assert!(tasks.items.is_empty() && tasks.next.is_none());
}

pub(super) async fn a_definition_reads_back_as_it_was_submitted(harness: &dyn Harness) {
    let rich = plan("p")
        .task_with("a", |task| {
            task.tenant = Some(tenant("租户 001/eu"));
            task.priority = -7;
            task.input = json!({ "deep": [1, 2.5, null, "ü", { "z": 1, "a": 2 }], "big": u64::MAX });
            task.matrix = json!({ "region": "eu", "n": 3 }).as_object().unwrap().clone();
            task.stages = Some(vec![stage("only", &[])].into());
        })
        .task("b")
        .settings(|settings| settings.task_timeout = Some(Millis::from_secs(9)))
        .stages(vec![
            milepost_core::plan::StageDefinition {
                condition: Some("input.n > 1".to_owned()),
                timeout: Some(Millis::new(250)),
                rollback: None,
                ..stage("one", &[])
            },
            stage("two", &[0]),
        ]);
    let scene = Scene::with(harness, rich.clone()).await;
    assert_eq!(scene.store.definition(&plan_id("p")).await.unwrap(), Some(rich.0.clone()));
    let task = scene.task("a").await.task;
    assert_eq!((*task.spec().input).clone(), rich.0.tasks[0].input);
    assert_eq!((&task.spec().matrix, task.spec().priority), (&rich.0.tasks[0].matrix, -7));
    assert_eq!((task.spec().stages.len(), scene.task("b").await.task.spec().stages.len()), (1, 2));
}

pub(super) async fn events_are_read_after_a_sequence_and_up_to_a_limit(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    let read = async |after, limit| {
        let events = scene.store.events(EventQuery { task: task_id("a"), after, limit }).await.unwrap();
        events.iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 3).await, [1, 2, 3]);
    assert_eq!(read(3, 2).await, [4, 5]);
    assert_eq!(read(5, 100).await, [6, 7]);
    assert!(read(7, 100).await.is_empty());
    assert!(read(u64::from(u32::MAX), 100).await.is_empty());
}

async fn pages(scene: &Scene<'_>, of: TasksOf, statuses: Vec<TaskStatus>, limit: usize) -> Vec<Vec<String>> {
    let mut query = TaskQuery { of, statuses, after: None, limit };
    let mut pages = Vec::new();
    loop {
        let page = scene.store.tasks(query.clone()).await.unwrap();
        pages.push(page.items.iter().map(|row| row.key.id.to_string()).collect());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return pages,
        }
    }
}

pub(super) async fn tasks_of_a_plan_are_paged_in_the_order_of_the_file(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("e").task("d").task("c").task("b")).await;
    scene.submit(plan("q").task("z")).await;
    let of = || TasksOf::Plan(plan_id("p"));
    assert_eq!(pages(&scene, of(), vec![], 3).await, [vec!["e", "d", "c"], vec!["b"]]);
    assert_eq!(pages(&scene, of(), vec![], 2).await, [vec!["e", "d"], vec!["c", "b"]]);
    assert_eq!(pages(&scene, of(), vec![], 10).await, [vec!["e", "d", "c", "b"]]);
    scene.update(plan("p").task("e").task("new").task("b")).await.unwrap();
    assert_eq!(pages(&scene, of(), vec![], 2).await, [vec!["e", "b"], vec!["new"]]);
}

pub(super) async fn tasks_of_a_plan_are_filtered_by_status(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").task("c").task("d").task("e").max(3)).await;
    let claimed = scene.claim().await;
    scene.does(&claimed.tasks[0], fatal(0)).await;
    scene.does(&claimed.tasks[2], fatal(0)).await;
    let of = || TasksOf::Plan(plan_id("p"));
    assert_eq!(pages(&scene, of(), vec![TaskStatus::Failed], 1).await, [vec!["a"], vec!["c"]]);
    let open = vec![TaskStatus::Pending, TaskStatus::Running];
    assert_eq!(pages(&scene, of(), open, 2).await, [vec!["b", "d"], vec!["e"]]);
    assert_eq!(pages(&scene, of(), vec![TaskStatus::Paused], 2).await, [Vec::<String>::new()]);
}

pub(super) async fn tasks_of_a_tenant_come_newest_first(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").task_of("x", "u")).await;
    scene.submit(plan("q").task_of("c", "t").task("y")).await;
    let of = || TasksOf::Tenant(tenant("t"));
    assert_eq!(pages(&scene, of(), vec![], 2).await, [vec!["c", "b"], vec!["a"]]);
    scene.claim().await;
    assert_eq!(pages(&scene, of(), vec![TaskStatus::Running], 5).await, [vec!["a"]]);
}

pub(super) async fn plans_come_newest_first_in_pages(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    for id in ["one", "two", "three"] {
        scene.submit(plan(id).task(&format!("{id}-a"))).await;
    }
    let first = scene.store.plans(PlanQuery { open_only: false, after: None, limit: 2 }).await.unwrap();
    assert_eq!(first.items, [scene.plan("three").await, scene.plan("two").await]);
    let second = scene.store.plans(PlanQuery { open_only: false, after: first.next, limit: 2 }).await.unwrap();
    assert_eq!(second.items, [scene.plan("one").await]);
    assert!(first.next.is_some() && second.next.is_none());
}

pub(super) async fn a_row_agrees_with_its_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task("b")).await;
    let claimed = scene.claim().await;
    let task = scene.does(&claimed.tasks[0], success(0)).await;
    let due = scene.now + Millis::new(1) + super::given::BACKOFF;
    let task = scene.does(&task, failure(1, 1)).await;
    let row = scene.rows("p").await.remove(0);
    assert_eq!((row.key, row.plan, row.tenant), (task.key.clone(), plan_id("p"), Some(tenant("t"))));
    assert_eq!((row.status, row.version), (TaskStatus::Running, task.task.version()));
    assert_eq!((row.done, row.stages, row.stage, row.attempt), (1, 2, Some(stage_name("two")), 2));
    assert_eq!((row.next_due, row.updated_at, row.ended_at), (Some(due), scene.now, None));
    assert_eq!(row.created_at, task.task.spec().created_at);

    scene.does(&claimed.tasks[1], fatal(0)).await;
    let row = scene.rows("p").await.remove(1);
    assert_eq!((row.status, row.reason.as_deref()), (TaskStatus::Failed, Some("out of stock")));
    assert_eq!((row.ended_at, row.next_due), (Some(scene.now), None));
}

pub(super) async fn output_is_kept_in_order_and_found_by_stage_and_attempt(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    let claimed = scene.claim().await;
    let note = |task: &StoredTask, output| Note { key: task.key.clone(), progress: None, output };
    let first = vec![chunk(&scene, "one", 1, "1"), chunk(&scene, "one", 1, "2")];
    let other = note(&claimed.tasks[1], vec![chunk(&scene, "one", 1, "other")]);
    scene.store.note(vec![note(&claimed.tasks[0], first), other]).await.unwrap();
    let second = vec![chunk(&scene, "two", 1, "3"), chunk(&scene, "one", 2, "4"), chunk(&scene, "two", 1, "5")];
    scene.store.note(vec![note(&claimed.tasks[0], second)]).await.unwrap();
    let read = async |stage: Option<&str>, attempt| {
        let query = LogQuery { task: task_id("a"), stage: stage.map(stage_name), attempt };
        texts(&scene.store.logs(query).await.unwrap())
    };
    assert_eq!(read(None, None).await, ["1", "2", "3", "4", "5"]);
    assert_eq!(read(Some("one"), None).await, ["1", "2", "4"]);
    assert_eq!(read(Some("one"), Some(1)).await, ["1", "2"]);
    assert_eq!(read(None, Some(2)).await, ["4"]);
    assert!(read(Some("two"), Some(2)).await.is_empty());
}

pub(super) async fn output_rides_along_with_a_commit(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let binary = LogChunk { bytes: vec![0, 159, 146, 150, b'\n'], ..chunk(&scene, "one", 1, "") };
    let output = vec![chunk(&scene, "one", 1, "with it"), binary];
    let commit = Commit { output: output.clone(), ..scene.decision(&task, success(0)) };
    scene.store.commit(commit.clone()).await.unwrap();
    // Refused with the rest of its commit.
    scene.store.commit(commit).await.unwrap_err();
    let query = LogQuery { task: task_id("a"), stage: None, attempt: None };
    assert_eq!(scene.store.logs(query.clone()).await.unwrap(), output);
    scene.crash().await;
    assert_eq!(scene.store.logs(query).await.unwrap(), output);
}

pub(super) async fn progress_is_kept_until_its_stage_ends(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let note = |progress| vec![Note { key: task.key.clone(), progress, output: vec![] }];
    scene.store.note(note(Some((3, 10)))).await.unwrap();
    assert_eq!(scene.task("a").await.progress, Some((3, 10)));
    scene.store.note(note(Some((4, 10)))).await.unwrap();
    scene.store.note(note(None)).await.unwrap();
    assert_eq!(scene.rows("p").await[0].progress, Some((4, 10)));
    let task = scene.does(&task, Command::Pause(ann())).await;
    let task = scene.does(&task, Command::Resume(ann())).await;
    assert_eq!(scene.task("a").await.progress, Some((4, 10)));
    let task = scene.does(&task, success(0)).await;
    assert_eq!(task.task.status(), TaskStatus::Running);
    assert_eq!((scene.task("a").await.progress, scene.rows("p").await[0].progress), (None, None));
}

pub(super) async fn progress_of_a_task_that_is_paused_in_mid_stage_is_kept_until_it_is_resumed(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let said = Some((5, 10));
    scene.store.note(vec![Note { key: task.key.clone(), progress: said, output: vec![] }]).await.unwrap();
    let commit = scene.decision(&task, Command::Interrupt { reason: "it was cut off".to_owned() });
    let paused = decide(&commit.task, Command::Pause(ann()), scene.now).unwrap();
    let events = commit.events.iter().cloned().chain(paused.events).collect();
    scene.store.commit(Commit { events, task: Arc::new(paused.task), ..commit }).await.unwrap();
    let (stored, rows) = (scene.task("a").await, scene.rows("p").await);
    assert_eq!((stored.task.status(), stored.progress, rows[0].progress), (TaskStatus::Paused, said, said));
    scene.operator("a", Command::Resume(ann())).await;
    assert_eq!((scene.task("a").await.progress, scene.rows("p").await[0].progress), (None, None));
    scene.claim_one("a").await;
    assert_eq!((scene.task("a").await.progress, scene.rows("p").await[0].progress), (None, None));
}

pub(super) async fn progress_of_a_task_whose_node_stopped_is_kept_until_another_takes_it_on(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let said = Some((5, 10));
    scene.store.note(vec![Note { key: task.key.clone(), progress: said, output: vec![] }]).await.unwrap();
    let stop = Command::Interrupt { reason: "the node was stopped".to_owned() };
    scene.parks(&task, stop, Wake::Recovery).await;
    assert_eq!((scene.task("a").await.progress, scene.rows("p").await[0].progress), (said, said));
    scene.claim_one("a").await;
    assert_eq!((scene.task("a").await.progress, scene.rows("p").await[0].progress), (None, None));
}

pub(super) async fn a_plans_counts_follow_its_tasks(harness: &dyn Harness) {
    let tasks = ["completes", "fails", "is-cancelled", "pauses", "runs", "waits"];
    let mut scene = Scene::with(harness, tasks.iter().fold(plan("p"), |plan, id| plan.task(id)).max(5)).await;
    let claimed = scene.claim().await;
    scene.finishes(&claimed.tasks[0]).await;
    scene.does(&claimed.tasks[1], fatal(0)).await;
    scene.does(&claimed.tasks[2], Command::Cancel(ann())).await;
    let task = scene.does(&claimed.tasks[3], Command::Pause(ann())).await;
    scene.does(&task, success(0)).await;
    let counts = scene.plan("p").await.counts;
    assert_eq!((counts.total, counts.open()), (6, 3));
    assert_eq!((counts.pending, counts.running, counts.paused), (1, 1, 1));
    assert_eq!((counts.completed, counts.failed, counts.cancelled), (1, 1, 1));
    assert_eq!(
        scene.store.plans(PlanQuery { open_only: false, after: None, limit: 1 }).await.unwrap().items[0].counts,
        counts
    );
    scene.operator("fails", Command::Rollback(ann())).await;
    let counts = scene.plan("p").await.counts;
    assert_eq!((counts.rolling_back, counts.failed, counts.open()), (1, 0, 4));
}
