//! Plans that come from another store: as they were there, and going on from there.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::plan::{Plan, PlanCommand, Recovery};
use milepost_core::task::{Command, PlanStatus, TaskStatus};
use milepost_core::time::Millis;

use crate::error::{Clash, StoreError};
use crate::export::{all_plans, read_moved};
use crate::memory::MemoryStore;
use crate::model::{Changed, Commit, EventQuery, LogChunk, LogQuery, Position, Resubmit, Start, TaskRow};
use crate::moved::MovedPlan;
use crate::store::Store;

use super::Harness;
use super::given::{
    BACKOFF, PlanBuilder, Scene, ann, everything_after, fatal, ids, plan, plan_id, stage_name, success, task_id,
};

/// Where plans come from: the plainest store there is.
#[derive(Default)]
pub(super) struct Memory(Mutex<Option<Arc<MemoryStore>>>);

impl Memory {
    fn keep(&self, store: MemoryStore) -> Arc<dyn Store> {
        let store = Arc::new(store);
        *self.0.lock().unwrap() = Some(store.clone());
        store
    }
}

#[async_trait]
impl Harness for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(MemoryStore::new())
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let reopened = self.0.lock().unwrap().as_ref().expect("a store was opened").reopen();
        self.keep(reopened)
    }
}

async fn whole(store: &dyn Store, plan: &str) -> MovedPlan {
    let locks = store.locks().await.unwrap();
    read_moved(store, &plan_id(plan), &locks).await.unwrap().expect("the plan is stored")
}

/// The target's scene goes on at the source's time.
pub(super) async fn import(from: &Scene<'_>, to: &mut Scene<'_>) {
    to.now = from.now;
    for row in all_plans(&*from.store).await.unwrap() {
        to.store.import(whole(&*from.store, row.id.as_str()).await).await.expect("the target is empty");
    }
}

/// Tasks in every state: t-done, t-failed, t-paused, t-asleep, t-lost (its node is gone), t-waits (for the tenant of
/// t-asleep) and t-new, of a plan with as many slots.
fn every_state(id: &str) -> PlanBuilder {
    plan(id)
        .task("t-done")
        .task("t-failed")
        .task_of("t-paused", "tenant-p")
        .task_of("t-asleep", "tenant-a")
        .task_of("t-lost", "租户 001/eu")
        .task_of("t-waits", "tenant-a")
        .task_with("t-new", |task| task.input = serde_json::json!({ "b": 1.5, "a": ["x", null] }))
}

/// Answers the scene; t-asleep is due a second after its last commit.
async fn with_every_state<'a>(memory: &'a Memory, plan: PlanBuilder) -> Scene<'a> {
    let id = plan.0.definition.id.to_string();
    let mut scene = Scene::with(memory, plan).await;
    // All but t-waits, which waits for its tenant, and t-new.
    let claimed = scene.claim_up_to(5).await;
    let [done, failed, paused, asleep, _lost] = &claimed.tasks[..] else { panic!("{claimed:?}") };
    let chunk = |stage: &str, bytes: &[u8]| LogChunk {
        stage: stage_name(stage),
        attempt: 1,
        at: scene.now,
        bytes: bytes.to_vec(),
    };
    let output = vec![chunk("one", b"first\n"), chunk("one", &[0, 255, 7])];
    scene.store.commit(Commit { output, ..scene.decision(done, success(0)) }).await.unwrap();
    let done = scene.task("t-done").await;
    scene.does(&done, success(1)).await;
    scene.does(failed, fatal(0)).await;
    let paused = scene.does(paused, Command::Pause(ann())).await;
    scene.does(&paused, success(0)).await;
    scene.falls_asleep(asleep).await;
    scene.verb(&id, PlanCommand::Pause).await;
    scene.verb(&id, PlanCommand::Resume).await;
    scene.crash().await;
    assert_eq!(scene.status("t-paused").await, TaskStatus::Paused);
    scene
}

/// What a list shows, without the number that a task has in its store.
async fn rows(scene: &Scene<'_>, plan: &str) -> Vec<TaskRow> {
    let mut rows = scene.rows(plan).await;
    rows.iter_mut().for_each(|row| row.key.no = 0);
    rows
}

pub(super) async fn an_imported_plan_is_as_it_was_with_all_its_history(harness: &dyn Harness) {
    let memory = Memory::default();
    let from = with_every_state(&memory, every_state("p")).await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    for _ in 0..2 {
        assert_eq!(to.plan("p").await, from.plan("p").await);
        assert_eq!(rows(&to, "p").await, rows(&from, "p").await);
        let (there, here) = (whole(&*from.store, "p").await, whole(&*to.store, "p").await);
        assert_eq!(there.plan, here.plan);
        assert_eq!(there.locks.len(), 3);
        for (there, here) in there.tasks.iter().zip(&here.tasks) {
            assert_eq!((&there.task, &there.events, there.wake), (&here.task, &here.events, here.wake));
            assert_eq!(there.output, here.output);
        }
        assert_eq!(there.digest(), here.digest());
        let query = LogQuery { task: task_id("t-done"), stage: None, attempt: None };
        assert_eq!(to.store.logs(query).await.unwrap().len(), 2);
        // And after a crash.
        to.crash().await;
    }
}

pub(super) async fn an_imported_plan_goes_on_where_it_was(harness: &dyn Harness) {
    let memory = Memory::default();
    let from = with_every_state(&memory, every_state("p")).await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    let claimed = to.claim().await;
    assert_eq!(ids(&claimed), ["t-lost", "t-new"]);
    let events: Vec<&str> = claimed.tasks[0].claim_events.iter().map(|record| record.event().kind()).collect();
    assert!(events.contains(&"TASK_INTERRUPTED"), "{events:?}");
    assert!(claimed.next_due.is_some());
    for held in &claimed.tasks {
        to.finishes(held).await;
    }
    to.later(BACKOFF);
    let asleep = to.claim_one("t-asleep").await;
    to.finishes(&asleep).await;
    let waited = to.claim_one("t-waits").await;
    to.finishes(&waited).await;
    to.operator("t-paused", Command::Resume(ann())).await;
    let resumed = to.claim_one("t-paused").await;
    to.finishes(&resumed).await;
    assert_eq!(to.plan_status("p").await, PlanStatus::Failed);
    assert_eq!(to.locks().await, []);
}

pub(super) async fn what_a_lost_node_had_stays_interrupted_in_a_manual_plan_that_is_imported(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").manual().task("t")).await;
    from.claim_one("t").await;
    from.crash().await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    for _ in 0..2 {
        assert!(to.rows("p").await[0].interrupted);
        assert_eq!(ids(&to.claim().await), [""; 0]);
        to.crash().await;
    }
    let claimed = to.claim_only("p").await;
    assert_eq!(ids(&claimed), ["t"]);
    assert!(to.log("t").await.contains(&"TASK_INTERRUPTED"));
    to.finishes(&claimed.tasks[0]).await;
    assert_eq!(to.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn an_imported_task_keeps_its_tenant_and_its_slot(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").max(1).task_of("holds", "tenant-1").task("next")).await;
    let held = from.claim_one("holds").await;
    from.falls_asleep(&held).await;
    let fence = from.store.locks().await.unwrap()[0].fence;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    to.submit(plan("q").task_of("waits", "tenant-1")).await;
    assert_eq!(ids(&to.claim().await), [""; 0]);
    assert_eq!(to.locks().await, [("tenant-1".to_owned(), "holds".to_owned())]);
    to.later(BACKOFF);
    let held = to.claim_one("holds").await;
    assert!(to.store.locks().await.unwrap()[0].fence > fence, "each claim has a larger fence");
    to.finishes(&held).await;
    assert_eq!(ids(&to.claim().await), ["next", "waits"]);
}

pub(super) async fn a_tenants_fence_grows_on_after_an_import_also_when_its_lock_was_given_back(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").task_of("holds", "tenant-1").task_of("next", "tenant-1")).await;
    let held = from.claim_one("holds").await;
    from.falls_asleep(&held).await;
    let mut to = Scene::new(harness).await;
    let mut moved = whole(&*from.store, "p").await;
    moved.locks[0].fence = 1_000_000;
    to.store.import(moved).await.unwrap();
    to.now = from.now;
    to.operator("holds", Command::Cancel(ann())).await;
    assert_eq!(to.locks().await, []);
    to.crash().await;
    to.claim_one("next").await;
    assert!(to.store.locks().await.unwrap()[0].fence > 1_000_000);
}

pub(super) async fn a_rollback_that_was_asked_for_begins_after_an_import(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").max(1).task("undo").task("other")).await;
    let held = from.claim_one("undo").await;
    let held = from.does(&held, success(0)).await;
    from.does(&held, fatal(1)).await;
    from.operator("undo", Command::Rollback(ann())).await;
    assert_eq!(from.status("undo").await, TaskStatus::RollingBack);
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    let undo = to.claim_one("undo").await;
    assert_eq!(ids(&to.claim().await), [""; 0], "it has the plan's one slot now");
    to.finishes(&undo).await;
    let other = to.claim_one("other").await;
    to.finishes(&other).await;
    assert_eq!(to.status("undo").await, TaskStatus::RolledBack);
}

pub(super) async fn an_imported_plan_that_has_ended_stays_ended(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").task("t")).await;
    let held = from.claim_one("t").await;
    from.finishes(&held).await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    assert_eq!(to.plan("p").await, from.plan("p").await);
    assert_eq!(ids(&to.claim().await), [""; 0]);
    to.crash().await;
    assert_eq!(to.plan("p").await, from.plan("p").await);
}

pub(super) async fn an_imported_plan_that_was_ready_waits_to_be_started(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::new(&memory).await;
    from.submit_for_later(plan("p").task("t")).await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    assert_eq!(ids(&to.claim().await), [""; 0]);
    to.verb("p", PlanCommand::Start).await;
    to.claim_one("t").await;
}

/// Each store says for itself for which nodes a plan is set going, so that is nothing to compare.
pub(super) async fn an_imported_plan_is_the_same_whether_or_not_it_waits_for_a_person(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("silent").task("a")).await;
    from.recovery = Recovery::Manual;
    from.crash().await;
    from.crash().await;
    from.submit(plan("manual").task("b").manual()).await;
    from.claim_up_to(0).await;
    from.crash().await;
    from.claim_up_to(0).await;
    from.verb("manual", PlanCommand::Resume).await;
    assert!(from.plan("silent").await.waits_for_person && !from.plan("manual").await.waits_for_person);
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    for id in ["silent", "manual"] {
        assert_eq!(whole(&*from.store, id).await.digest(), whole(&*to.store, id).await.digest(), "{id}");
    }
}

pub(super) async fn the_same_plan_submitted_after_an_import_carries_on(harness: &dyn Harness) {
    let memory = Memory::default();
    let from = with_every_state(&memory, every_state("p")).await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    let again = to.submit(every_state("p")).await;
    assert!(!again.created);
    assert_eq!(again.plan, from.plan("p").await);
    let other = to.try_submit(every_state("p").task("more"), Start::Later, Resubmit::Same).await;
    assert!(matches!(other, Err(StoreError::Clash(Clash::OtherContent { .. }))), "{other:?}");
}

pub(super) async fn an_import_is_refused_whole_when_a_name_in_it_is_taken(harness: &dyn Harness) {
    let memory = Memory::default();
    let from = Scene::with(&memory, plan("p").task("a").task_of("b", "tenant-1")).await;
    let moved = whole(&*from.store, "p").await;
    let mut to = Scene::with(harness, plan("p").task("c")).await;
    let before = to.snapshot("p").await;
    let refused = to.store.import(moved.clone()).await;
    assert!(matches!(refused, Err(StoreError::Clash(_))), "{refused:?}");
    assert_eq!(to.snapshot("p").await, before);
    to.submit(plan("q").task("b")).await;
    let renamed = Plan { definition: plan("r").0.definition, ..moved.plan.clone() };
    let refused = to.store.import(MovedPlan { plan: renamed, ..moved }).await;
    assert!(matches!(refused, Err(StoreError::Clash(Clash::TaskId { .. }))), "{refused:?}");
    assert!(to.store.plan(&plan_id("r")).await.unwrap().is_none());
    assert!(to.store.task(&task_id("a")).await.unwrap().is_none());
}

pub(super) async fn an_import_is_refused_whole_when_a_tenant_in_it_is_held(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").task("free").task_of("asleep", "tenant-1")).await;
    let claimed = from.claim_up_to(2).await;
    from.falls_asleep(&claimed.tasks[1]).await;
    let moved = whole(&*from.store, "p").await;
    let mut to = Scene::with(harness, plan("q").task_of("holds", "tenant-1")).await;
    to.now = from.now;
    let held = to.claim_one("holds").await;
    let refused = to.store.import(moved.clone()).await;
    assert!(
        matches!(&refused, Err(StoreError::Clash(Clash::TenantsBusy { busy, .. })) if *busy == ["tenant-1"]),
        "{refused:?}"
    );
    assert!(to.store.plan(&plan_id("p")).await.unwrap().is_none());
    assert!(to.store.task(&task_id("free")).await.unwrap().is_none());
    assert_eq!(to.locks().await, [("tenant-1".to_owned(), "holds".to_owned())]);
    to.finishes(&held).await;
    to.store.import(moved).await.expect("the tenant is free");
    assert_eq!(to.locks().await, [("tenant-1".to_owned(), "asleep".to_owned())]);
}

pub(super) async fn an_import_is_told_among_the_changes(harness: &dyn Harness) {
    let memory = Memory::default();
    let from = with_every_state(&memory, every_state("p")).await;
    let mut to = Scene::new(harness).await;
    let before = to.store.newest().await.unwrap();
    import(&from, &mut to).await;
    assert!(to.store.newest().await.unwrap() > before);
    let changes = everything_after(&*to.store, Position(0), Some(plan_id("p")), 3).await;
    for moved in &whole(&*from.store, "p").await.tasks {
        let mut told = Vec::new();
        for change in &changes.items {
            if let Changed::Task { task, sequence, records, .. } = &change.what
                && *task == moved.task.spec().id
            {
                assert_eq!(*sequence, told.len() as u64 + 1);
                told.extend(records.iter().cloned());
            }
        }
        assert_eq!(told, moved.events);
    }
    let plans = changes.items.iter().filter(|change| matches!(change.what, Changed::Plan { .. }));
    assert!(plans.count() > 0);
}

pub(super) async fn a_long_log_is_imported_whole_and_goes_on(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").task("t")).await;
    let mut held = from.claim_one("t").await;
    while held.task.version() < 1200 {
        held = from.does(&held, Command::Pause(ann())).await;
        held = from.does(&held, Command::Resume(ann())).await;
    }
    from.crash().await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    let events = |scene: &Scene<'_>, after| {
        let store = scene.store.clone();
        async move { store.events(EventQuery { task: task_id("t"), after, limit: 10_000 }).await.unwrap() }
    };
    for after in [0, 1, 199, 200, 201, 1199] {
        assert_eq!(events(&to, after).await, events(&from, after).await);
    }
    to.later(Millis::new(1));
    let held = to.claim_one("t").await;
    to.finishes(&held).await;
    assert_eq!(to.plan_status("p").await, PlanStatus::Completed);
}
