//! What a long log costs in SQLite: whoever goes on with a task reads its last snapshot and the few rows after it.

use std::path::PathBuf;
use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Plan, PlanDefinition, Settings, TaskDefinition, WorkflowRef};
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{Command, Record, StageEnded, StageResult, Step, StepKind, Task, decide_on, outputs_of};
use milepost_core::time::Timestamp;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{
    ClaimRequest, Commit, EventQuery, Holder, LeaseChange, Resubmit, Start, Store, StoreError, StoredTask, Submission,
    TaskRef,
};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

const NOW: Timestamp = Timestamp::from_millis(1_764_000_000_000);

fn workflow() -> WorkflowRef {
    WorkflowRef { name: "endless".into(), version: 1 }
}

/// A file with one workflow in it, and the node that runs it.
struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    store: SqliteStore,
    key: TaskRef,
    lease: u64,
    task: Arc<Task>,
    unwritten: Vec<Record>,
    expected: u64,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).unwrap();
        let definition = PlanDefinition {
            id: PlanId::parse("p").unwrap(),
            settings: Settings::default(),
            stages: Vec::new().into(),
            workflow: Some(workflow()),
            parent: None,
        };
        let task = TaskDefinition {
            id: TaskId::parse("p").unwrap(),
            tenant: None,
            priority: 0,
            input: Value::Null,
            matrix: Map::new(),
            stages: None,
            file: None,
            message: None,
        };
        let plan = Arc::new(Plan { definition, tasks: vec![task] });
        let (start, resubmit) = (Start::AtOnce, Resubmit::Same);
        store.submit(Submission { plan, start, resubmit, request: None, entries: Vec::new(), now: NOW }).await.unwrap();
        let StoredTask { key, task, epoch, .. } = claim(&store).await;
        let expected = task.version();
        let task = Arc::new(task);
        Self { _folder: folder, path, store, key, lease: epoch, task, unwritten: Vec::new(), expected }
    }

    fn task(&self) -> &Task {
        &self.task
    }

    fn decides(&mut self, command: Command) {
        self.unwritten.extend(decide_on(Arc::make_mut(&mut self.task), command, NOW).unwrap());
    }

    /// One more stage, begun and done.
    fn does_a_stage(&mut self) {
        let stage = self.task().stages().len();
        let step = Step {
            kind: StepKind::Stage,
            scope: "".into(),
            place: stage as u32 + 1,
            digest: None,
            retry: RetryPolicy::default(),
            timeout: None,
            rollback: false,
        };
        self.decides(Command::Begin(vec![(StageName::parse(format!("step.{stage}")).unwrap(), step)]));
        let result = StageResult::Success(outputs_of(json!(stage)));
        self.decides(Command::StageEnded(StageEnded { stage, attempt: 1, result, stopping: false }));
    }

    async fn commits(&mut self) -> Result<(), StoreError> {
        let commit = Commit {
            key: self.key.clone(),
            holder: Holder::Lease(self.lease),
            expected: self.expected,
            events: std::mem::take(&mut self.unwritten).into(),
            task: self.task.clone(),
            lease: LeaseChange::Keep,
            plan: None,
            output: Vec::new(),
        };
        self.store.commit(commit).await?;
        self.expected = self.task().version();
        Ok(())
    }

    fn file(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// The version that the snapshot shows and how many rows came after it; there is never more than one snapshot.
    fn snapshot(&self) -> Option<(u64, i64)> {
        let file = self.file();
        let found: i64 = file.query_row("SELECT count(*) FROM snapshots", [], |row| row.get(0)).unwrap();
        assert!(found <= 1);
        let sql =
            "SELECT seq, (SELECT count(*) FROM events e WHERE e.task = s.task AND e.pos > s.pos) FROM snapshots s";
        (found == 1)
            .then(|| file.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))).unwrap())
    }

    /// Takes away every row of the log that a reader of the snapshot has no need of.
    fn forget_what_is_before_the_snapshot(&self) {
        let sql = "DELETE FROM events WHERE task > 0 AND pos <= (SELECT pos FROM snapshots)";
        assert!(self.file().execute(sql, []).unwrap() > 100);
    }

    async fn crashes_and_resumes(&mut self) -> StoredTask {
        self.store.close();
        self.store = SqliteStore::open(&self.path).unwrap();
        claim(&self.store).await
    }
}

async fn claim(store: &SqliteStore) -> StoredTask {
    let request = ClaimRequest {
        node: "node".into(),
        only: None,
        plans: true,
        workflows: [workflow()].into(),
        recovery: Default::default(),
        limit: 1,
        now: Some(NOW),
    };
    store.claim(request).await.unwrap().tasks.remove(0)
}

#[tokio::test]
async fn a_workflow_of_20_000_generations_resumes_from_the_last_one() {
    let mut scene = Scene::new().await;
    for generation in 2..=20_000 {
        scene.does_a_stage();
        scene.decides(Command::Continue(json!(generation)));
        scene.commits().await.unwrap();
    }
    assert_eq!(scene.snapshot(), Some((scene.task().version(), 0)));
    scene.does_a_stage();
    scene.commits().await.unwrap();
    scene.forget_what_is_before_the_snapshot();
    let before = scene.store.task(&scene.key.id).await.unwrap().unwrap();
    assert_eq!(before.task, *scene.task());
    let after = scene.crashes_and_resumes().await;
    assert_eq!(after.task.flow().unwrap().generation(), 20_000);
    assert_eq!(after.task.version(), before.task.version() + after.claim_events.len() as u64);
}

#[tokio::test]
async fn a_workflow_of_20_000_stages_resumes_from_a_snapshot_and_has_made_few_of_them() {
    let mut scene = Scene::new().await;
    let mut snapshots = Vec::new();
    for _ in 0..2_000 {
        (0..10).for_each(|_| scene.does_a_stage());
        scene.commits().await.unwrap();
        if let Some((version, 0)) = scene.snapshot() {
            snapshots.push(version);
        }
    }
    // Further and further apart, and still never more than half of the log behind.
    assert_eq!(snapshots.len(), 12, "{snapshots:?}");
    let version = scene.task().version();
    let (shown, rows) = scene.snapshot().unwrap();
    assert!(shown * 2 > version && rows <= 500, "{shown} of {version}, {rows} rows");
    scene.forget_what_is_before_the_snapshot();
    let after = scene.crashes_and_resumes().await;
    assert_eq!(after.task.done(), scene.task().done());
    assert_eq!(after.task.version(), version + after.claim_events.len() as u64);
}

#[tokio::test]
async fn a_short_log_has_no_snapshot_and_a_refused_commit_leaves_none() {
    let mut scene = Scene::new().await;
    (0..240).for_each(|_| scene.does_a_stage());
    scene.commits().await.unwrap();
    assert_eq!(scene.snapshot(), None);
    (0..20).for_each(|_| scene.does_a_stage());
    let good = std::mem::replace(&mut scene.lease, 0);
    let unwritten = scene.unwritten.clone();
    assert!(matches!(scene.commits().await, Err(StoreError::Fenced { .. })));
    assert_eq!(scene.snapshot(), None);
    (scene.lease, scene.unwritten) = (good, unwritten);
    scene.commits().await.unwrap();
    assert_eq!(scene.snapshot(), Some((scene.task().version(), 0)));
}

#[tokio::test]
async fn a_snapshot_of_another_form_is_made_anew_from_the_log() {
    let mut scene = Scene::new().await;
    (0..400).for_each(|_| scene.does_a_stage());
    scene.commits().await.unwrap();
    let body: String = scene.file().query_row("SELECT body FROM snapshots", [], |row| row.get(0)).unwrap();
    let other = format!("another\n{}", body.split_once('\n').unwrap().1);
    let sql = "UPDATE snapshots SET body = ?1, crc = ?2";
    scene.file().execute(sql, rusqlite::params![other, crc32fast::hash(other.as_bytes())]).unwrap();
    let read = scene.store.task(&scene.key.id).await.unwrap().unwrap();
    assert_eq!(read.task, *scene.task());
    let after = scene.crashes_and_resumes().await;
    assert_eq!(after.task.done(), scene.task().done());
    assert_eq!(scene.snapshot(), Some((after.task.version(), 0)));
    // The log is as whole as ever.
    let log = scene.store.events(EventQuery { task: scene.key.id.clone(), after: 0, limit: 10_000 }).await.unwrap();
    assert_eq!(log.len() as u64, after.task.version());
}

#[tokio::test]
async fn a_long_log_of_an_older_format_is_read_as_it_is() {
    let mut scene = Scene::new().await;
    (0..400).for_each(|_| scene.does_a_stage());
    scene.commits().await.unwrap();
    scene.store.close();
    let no_eras = "DROP INDEX task_runtimes_go; ALTER TABLE plans DROP COLUMN go; \
                   ALTER TABLE task_runtimes DROP COLUMN go; DELETE FROM meta WHERE key = 'settled'";
    scene.file().execute_batch(no_eras).unwrap();
    scene.file().execute_batch("DROP TABLE snapshots; DROP TABLE entries; PRAGMA user_version = 2").unwrap();
    let reader = SqliteStore::open_to_read(&scene.path).unwrap();
    assert_eq!(reader.task(&scene.key.id).await.unwrap().unwrap().task, *scene.task());
    let after = scene.crashes_and_resumes().await;
    assert_eq!(scene.snapshot(), Some((after.task.version(), 0)));
}
