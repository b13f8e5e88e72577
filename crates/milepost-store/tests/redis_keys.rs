//! What redis-cli shows: the keys, fields and times to live that other programs know, through the life of one plan.

mod redis_server;

use std::collections::BTreeMap;
use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::PlanCommand;
use milepost_core::task::{Checkpoint, Command, PlanStatus, StageEnded, StageResult};
use milepost_store::{
    Beat, ChangeQuery, Clash, EventQuery, MovedPlan, MovedTask, Position, Resubmit, Start, Store, StoreError,
    Submission, TaskQuery, TasksOf, Wake,
};
use redis_server::given::{
    ann, claim, claim_one, does, many, now, operator, plan, plan_id, submit, success, task_id, try_submit,
};
use redis_server::{Place, is_missing};

const WEEK: i64 = 604_800;
const LOCK: i64 = 9_000;

impl Place {
    async fn hash(&self, name: &str) -> BTreeMap<String, String> {
        self.ask(redis::cmd("HGETALL").arg(self.key(name))).await
    }

    async fn get(&self, name: &str) -> Option<String> {
        self.ask(redis::cmd("GET").arg(self.key(name))).await
    }

    /// Seconds; -1 for a key without an end, -2 for none.
    async fn ttl(&self, name: &str) -> i64 {
        self.ask(redis::cmd("TTL").arg(self.key(name))).await
    }

    async fn assert_lives_for(&self, name: &str, seconds: i64) {
        let left = self.ttl(name).await;
        assert!((seconds - 60..=seconds).contains(&left), "{name} lives for {left} s, not {seconds}");
    }

    async fn checkpoint(&self, task: &str) -> Checkpoint {
        serde_json::from_str(&self.get(&format!("ckpt:{task}")).await.expect("there is a checkpoint")).unwrap()
    }
}

fn fields(hash: &BTreeMap<String, String>) -> Vec<&str> {
    hash.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn one_plan_through_its_life_as_redis_cli_shows_it() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let store = place.node("node-1").await;
    let two = plan("plan-123", &[("task-456", Some("tenant-001")), ("task-457", None)]);
    let submission = Submission {
        plan: Arc::new(two),
        start: Start::Later,
        resubmit: Resubmit::Same,
        request: None,
        entries: Vec::new(),
        now: now(),
    };
    store.submit(submission).await.unwrap();

    // Created.
    let hash = place.hash("plan:plan-123").await;
    assert_eq!(fields(&hash), ["createdAt", "maxConcurrency", "planId", "status", "taskIds"]);
    assert_eq!((hash["planId"].as_str(), hash["status"].as_str()), ("plan-123", "READY"));
    assert_eq!((hash["maxConcurrency"].as_str(), hash["taskIds"].as_str()), ("1000", r#"["task-456","task-457"]"#));
    let created: milepost_core::time::Timestamp = hash["createdAt"].parse().unwrap();
    assert!(hash["createdAt"].ends_with('Z') && now().since(created).get() < 60_000, "{}", hash["createdAt"]);
    let hash = place.hash("task:task-456").await;
    assert_eq!(fields(&hash), ["createdAt", "pauseRequested", "planId", "status", "taskId", "tenantId"]);
    let shown = ["taskId", "tenantId", "planId", "status", "pauseRequested"].map(|field| hash[field].as_str());
    assert_eq!(shown, ["task-456", "tenant-001", "plan-123", "PENDING", "false"]);
    assert_eq!(place.get("index:tenant:tenant-001").await.as_deref(), Some("task-456"));
    for key in ["plan:plan-123", "task:task-456", "task:task-457", "index:tenant:tenant-001"] {
        place.assert_lives_for(key, WEEK).await;
    }
    for key in ["lock:tenant:tenant-001", "ckpt:task-456", "ckpt:meta:task-456"] {
        assert_eq!(place.ttl(key).await, -2, "{key}");
    }

    // Started, and claimed.
    let change = |command| milepost_store::PlanChange {
        plan: plan_id("plan-123"),
        command,
        by: ann(),
        expected: None,
        now: now(),
    };
    store.change_plan(change(PlanCommand::Start)).await.unwrap();
    let hash = place.hash("plan:plan-123").await;
    assert_eq!(hash["status"], "RUNNING");
    assert!(hash.contains_key("startedAt"));
    let held = claim(&store, 10).await;
    let hash = place.hash("task:task-456").await;
    assert_eq!(hash["status"], "RUNNING");
    assert!(hash.contains_key("startedAt"));
    assert_eq!(place.get("lock:tenant:tenant-001").await.as_deref(), Some("plan-123:task-456"));
    place.assert_lives_for("lock:tenant:tenant-001", LOCK).await;

    // A stage is done.
    let first = does(&store, &held[0], success(0)).await;
    let checkpoint = place.checkpoint("task-456").await;
    assert_eq!((checkpoint.last_completed_stage_index, checkpoint.version), (0, first.task.version()));
    assert_eq!(checkpoint.executor_instance.as_deref(), Some("node"));
    let meta = place.hash("ckpt:meta:task-456").await;
    assert_eq!(fields(&meta), ["instanceId", "version"]);
    assert_eq!(meta["version"], first.task.version().to_string());
    let ends = |name: &str| {
        let (place, key) = (&place, place.key(name));
        async move { place.ask::<i64>(redis::cmd("PEXPIRETIME").arg(key)).await }
    };
    assert_eq!(ends("ckpt:task-456").await, ends("ckpt:meta:task-456").await, "they expire together");
    place.assert_lives_for("ckpt:task-456", WEEK).await;

    // Paused, and resumed: the tenant stays locked.
    let pausing = does(&store, &first, Command::Pause(ann())).await;
    assert_eq!(place.hash("task:task-456").await["pauseRequested"], "true");
    let failure = StageResult::Failure(Failure::fatal(ErrorType::Business, "out of stock"));
    let ended = |stage, result| Command::StageEnded(StageEnded { stage, attempt: 1, result, stopping: false });
    let second = does(&store, &held[1], ended(0, StageResult::Skip("nothing to do".to_owned()))).await;
    does(&store, &pausing, ended(1, failure)).await;

    // Failed: the checkpoint stays for a retry, the lock is gone, the index still answers.
    let hash = place.hash("task:task-456").await;
    assert_eq!(hash["status"], "FAILED");
    assert!(hash.contains_key("endedAt"));
    assert_eq!(place.checkpoint("task-456").await.failure_history.len(), 1);
    assert_eq!(place.ttl("lock:tenant:tenant-001").await, -2);
    assert_eq!(place.get("index:tenant:tenant-001").await.as_deref(), Some("task-456"));

    // The other one completes, and with it the plan ends.
    does(&store, &second, success(1)).await;
    assert_eq!(place.hash("task:task-457").await["status"], "COMPLETED");
    assert_eq!(place.ttl("ckpt:task-457").await, -2);
    assert_eq!(place.ttl("ckpt:meta:task-457").await, -2);
    let hash = place.hash("plan:plan-123").await;
    assert_eq!(hash["status"], "FAILED");
    assert!(hash.contains_key("endedAt"));

    // Tried again, it has no end any more, and goes on from its checkpoint.
    let retry = Command::Retry { by: ann(), from_checkpoint: true };
    let stored = store.task(&task_id("task-456")).await.unwrap().unwrap();
    let commit = redis_server::given::decision(&stored, retry);
    let commit =
        milepost_store::Commit { holder: milepost_store::Holder::Operator, plan: Some(PlanCommand::Retry), ..commit };
    store.commit(commit).await.unwrap();
    assert!(!place.hash("task:task-456").await.contains_key("endedAt"));
    assert_eq!(place.hash("plan:plan-123").await["status"], "RUNNING");
    let again = claim_one(&store).await;
    does(&store, &again, success(1)).await;
    assert_eq!(place.hash("plan:plan-123").await["status"], "COMPLETED");
    assert_eq!(place.ttl("ckpt:task-456").await, -2);
    for key in ["plan:plan-123", "task:task-456", "task:task-457", "index:tenant:tenant-001"] {
        place.assert_lives_for(key, WEEK).await;
    }
}

#[tokio::test]
async fn what_milepost_needs_besides_has_no_end() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let store = place.node("node-1").await;
    submit(&store, plan("p", &[("t", Some("tenant"))])).await;
    let held = claim_one(&store).await;
    does(&store, &held, success(0)).await;
    for key in place.keys("mp:*").await {
        let left: i64 = place.ask(redis::cmd("TTL").arg(&key)).await;
        assert_eq!(left, -1, "{key}");
    }
}

#[tokio::test]
async fn nothing_is_lost_and_no_version_goes_back_when_what_the_outside_sees_has_expired() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let store = place.node("node-1").await;
    submit(&store, plan("p", &[("t", Some("tenant"))])).await;
    let held = claim_one(&store).await;
    let held = does(&store, &held, success(0)).await;
    let before = place.checkpoint("t").await.version;
    let keys = ["plan:p", "task:t", "index:tenant:tenant", "ckpt:t", "ckpt:meta:t"].map(|name| place.key(name));
    let deleted: i64 = place.ask(redis::cmd("DEL").arg(&keys)).await;
    assert_eq!(deleted, 5);
    let stored = store.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(stored.task, held.task);
    let pausing = does(&store, &held, Command::Pause(ann())).await;
    assert!(place.checkpoint("t").await.version > before);
    let meta = place.hash("ckpt:meta:t").await;
    assert_eq!(meta["version"], pausing.task.version().to_string());
}

#[tokio::test]
async fn keys_of_an_open_plan_are_kept_alive_by_any_nodes_beat_in_portions() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (store, other) = (place.node("a").await, place.node("b").await);
    submit(&store, many("p", 600)).await;
    let names = ["plan:p", "task:p-0", "task:p-599"];
    for name in names {
        let _: i64 = place.ask(redis::cmd("EXPIRE").arg(place.key(name)).arg(100)).await;
    }
    other.beat(Beat::default()).await.unwrap();
    assert!(place.ttl("plan:p").await <= 100, "it was looked at less than a day ago");
    let _: i64 = place.ask(redis::cmd("ZADD").arg(place.key("mp:refresh")).arg(0).arg(1)).await;
    other.beat(Beat::default()).await.unwrap();
    place.assert_lives_for("task:p-0", WEEK).await;
    assert!(place.ttl("task:p-599").await <= 100, "a beat is cheap, however large the plan is");
    for _ in 0..3 {
        other.beat(Beat::default()).await.unwrap();
    }
    for name in names {
        place.assert_lives_for(name, WEEK).await;
    }
    let next: f64 = place.ask(redis::cmd("ZSCORE").arg(place.key("mp:refresh")).arg(1)).await;
    assert!(next > now().as_millis() as f64 + 80_000_000.0, "it is looked at again in a day");
}

#[tokio::test]
async fn a_large_plan_is_there_whole_or_not_at_all() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let store = place.node("a").await;
    submit(&store, plan("other", &[("p-1700", None)])).await;
    let clash = try_submit(&store, many("p", 1800)).await;
    assert!(matches!(clash, Err(StoreError::Clash(Clash::TaskId { .. }))), "{clash:?}");
    assert_eq!(store.plan(&plan_id("p")).await.unwrap(), None);
    assert_eq!(store.task(&task_id("p-3")).await.unwrap().map(|task| task.key), None);
    assert_eq!(place.keys("task:p-*").await.len(), 1, "what was loaded is taken back");
    submit(&store, many("q", 1800)).await;
    let query = TaskQuery { of: TasksOf::Plan(plan_id("q")), statuses: vec![], after: None, limit: 5000 };
    let rows = store.tasks(query).await.unwrap().items;
    assert_eq!(rows.len(), 1800);
    assert!(rows.iter().enumerate().all(|(number, row)| row.key.id == task_id(&format!("q-{number}"))));
    assert_eq!(store.definition(&plan_id("q")).await.unwrap(), Some(many("q", 1800)));
    assert_eq!(claim(&store, 5000).await.len(), 1001, "as many as may run at once, and the other plan's");
}

#[tokio::test]
async fn on_a_cluster_all_keys_have_one_hash_tag() {
    if is_missing() {
        return;
    }
    let mut place = Place::new();
    place.url.push_str("&cluster=true");
    let name = place.prefix.trim_end_matches(':').to_owned();
    let store = place.node("a").await;
    submit(&store, plan("p", &[("t", Some("tenant"))])).await;
    let held = claim_one(&store).await;
    does(&store, &held, success(0)).await;
    let keys: Vec<String> = place.ask(redis::cmd("KEYS").arg(format!("*{name}*"))).await;
    assert!(keys.len() > 10 && keys.iter().all(|key| key.starts_with(&format!("{{{name}}}:"))), "{keys:?}");
    let _: i64 = place.ask(redis::cmd("UNLINK").arg(keys)).await;
}

#[tokio::test]
async fn a_plan_moves_in_with_its_history_and_goes_on_as_it_was() {
    if is_missing() {
        return;
    }
    let (from, to) = (Place::new(), Place::new());
    let (old, new) = (from.node("a").await, to.node("a").await);
    submit(&old, plan("p", &[("t", Some("tenant")), ("u", None), ("v", None), ("w", None)])).await;
    let held = claim(&old, 3).await;
    does(&old, &held[0], success(0)).await;
    let stop = Command::Interrupt { reason: "the node was stopped".to_owned() };
    for (index, wake) in [(0, Wake::Recovery), (1, Wake::At(now()))] {
        let stored = old.task(&held[index].key.id).await.unwrap().unwrap();
        let commit = redis_server::given::decision(&stored, stop.clone());
        let lease = milepost_store::LeaseChange::Release(wake);
        old.commit(milepost_store::Commit { lease, ..commit }).await.unwrap();
    }
    let done = does(&old, &held[2], success(0)).await;
    does(&old, &done, success(1)).await;
    operator(&old, "w", Command::Pause(ann())).await.unwrap();

    let mut tasks = Vec::new();
    for (id, wake) in [("t", Wake::Recovery), ("u", Wake::At(now())), ("v", Wake::Recovery), ("w", Wake::Recovery)] {
        let task = old.task(&task_id(id)).await.unwrap().unwrap().task;
        let events = old.events(EventQuery { task: task_id(id), after: 0, limit: 1000 }).await.unwrap();
        let events = events.into_iter().map(|event| event.record).collect();
        tasks.push(MovedTask { task, events, wake, output: Vec::new() });
    }
    let row = old.plan(&plan_id("p")).await.unwrap().unwrap();
    let moved = MovedPlan {
        plan: old.definition(&plan_id("p")).await.unwrap().unwrap(),
        row: row.clone(),
        tasks: tasks.clone(),
        locks: old.locks().await.unwrap(),
    };
    new.import(moved.clone()).await.unwrap();
    assert!(matches!(new.import(moved).await, Err(StoreError::Clash(_))));

    assert_eq!(new.plan(&plan_id("p")).await.unwrap(), Some(row));
    for task in &tasks {
        let id = &task.task.spec().id;
        assert_eq!(new.task(id).await.unwrap().unwrap().task, task.task);
        let events = new.events(EventQuery { task: id.clone(), after: 0, limit: 1000 }).await.unwrap();
        assert_eq!(events.into_iter().map(|event| event.record).collect::<Vec<_>>(), task.events);
    }
    let (locks, old_locks) = (new.locks().await.unwrap(), old.locks().await.unwrap());
    assert_eq!((locks.len(), &locks[0].task, locks[0].since), (1, &task_id("t"), old_locks[0].since));
    assert_eq!(locks[0].fence, old_locks[0].fence);
    assert_eq!(to.hash("task:v").await["status"], "COMPLETED");
    to.assert_lives_for("ckpt:t", WEEK).await;
    let changes = new.changes(ChangeQuery { after: Position(0), plan: None, limit: 1000 }).await.unwrap();
    assert!(changes.items.len() >= 8, "{changes:?}");
    let claimed = claim(&new, 10).await;
    assert_eq!(claimed.iter().map(|task| task.key.id.as_str()).collect::<Vec<_>>(), ["t", "u"]);
    assert_eq!(new.plan(&plan_id("p")).await.unwrap().unwrap().status, PlanStatus::Running);
}
