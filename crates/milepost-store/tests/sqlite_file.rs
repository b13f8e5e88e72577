//! What SQLite promises of its file beyond the contract: old formats, damage, and readers beside the owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milepost_core::api::Scope;
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{
    Action, Plan, PlanCommand, PlanDefinition, Settings, StageDefinition, TaskDefinition, Trigger,
};
use milepost_core::task::{By, Command, PlanStatus, StageEnded, StageResult, decide};
use milepost_core::time::Timestamp;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{
    Book, BookChange, Change, ChangeQuery, Changed, ClaimRequest, Commit, Entry, EntryQuery, Holder, LeaseChange,
    PlanChange, PlanQuery, Position, RequestKey, Resubmit, Start, Store, StoreError, StoredTask, Submission, TokenRow,
    read_moved,
};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

const NOW: Timestamp = Timestamp::from_millis(1_764_000_000_000);

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        Self { _folder: folder, path }
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path).unwrap()
    }

    fn open_to_read(&self) -> SqliteStore {
        SqliteStore::open_to_read(&self.path).unwrap()
    }
}

fn plan_id(id: &str) -> PlanId {
    PlanId::parse(id).unwrap()
}

fn plan(id: &str, tasks: usize) -> Plan {
    let stage = StageDefinition {
        name: StageName::parse("only").unwrap(),
        action: Action { uses: "noop".to_owned(), script: None, with: json!({}) },
        needs: Vec::new(),
        condition: None,
        retry: Default::default(),
        timeout: None,
        rollback: None,
    };
    let task = |n| TaskDefinition {
        id: TaskId::parse(format!("{id}-{n}")).unwrap(),
        tenant: None,
        priority: 0,
        input: Value::Null,
        matrix: Map::new(),
        stages: None,
        file: None,
        message: None,
    };
    let definition = PlanDefinition {
        id: plan_id(id),
        settings: Settings::default(),
        stages: vec![stage].into(),
        workflow: None,
        parent: None,
    };
    Plan { definition, tasks: (1..=tasks).map(task).collect() }
}

async fn submit(store: &SqliteStore, plan: Plan, key: Option<&str>) {
    let request = key.map(|key| RequestKey { key: key.to_owned(), digest: [7; 32] });
    let (start, resubmit) = (Start::AtOnce, Resubmit::Same);
    store
        .submit(Submission { plan: Arc::new(plan), start, resubmit, request, entries: Vec::new(), now: NOW })
        .await
        .unwrap();
}

async fn claim(store: &SqliteStore) -> Vec<StoredTask> {
    let request = ClaimRequest {
        node: "node".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit: 1000,
        now: Some(NOW),
    };
    store.claim(request).await.unwrap().tasks
}

async fn finish(store: &SqliteStore, held: &StoredTask) {
    let ended = StageEnded { stage: 0, attempt: 1, result: StageResult::Success(Map::new()), stopping: false };
    let decision = decide(&held.task, Command::StageEnded(ended), NOW).unwrap();
    let commit = Commit {
        key: held.key.clone(),
        holder: Holder::Lease(held.epoch),
        expected: held.task.version(),
        events: decision.events.into(),
        task: decision.task.into(),
        lease: LeaseChange::Keep,
        plan: None,
        output: Vec::new(),
    };
    store.commit(commit).await.unwrap();
}

async fn changes(store: &SqliteStore) -> Vec<Change> {
    store.changes(ChangeQuery { after: Position(0), plan: None, limit: 1000 }).await.unwrap().items
}

fn token() -> TokenRow {
    TokenRow {
        id: "t".to_owned(),
        name: "a token".to_owned(),
        hash: [3; 32],
        scope: Scope::Operate,
        tenants: Vec::new(),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
    }
}

/// As it was before there were eras.
const NO_ERAS: &str = "DROP INDEX task_runtimes_go; ALTER TABLE plans DROP COLUMN go; \
    ALTER TABLE task_runtimes DROP COLUMN go; DELETE FROM meta WHERE key = 'settled';";

/// As the first format was: no word of plans in the log, no requests, no tokens, no snapshots, no books.
fn back_to_the_first_format(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(NO_ERAS).unwrap();
    connection
        .execute_batch(
            "DELETE FROM events WHERE task < 0; DROP TABLE requests; DROP TABLE tokens; DROP TABLE snapshots; \
             DROP TABLE entries; \
             PRAGMA user_version = 1;",
        )
        .unwrap();
}

#[tokio::test]
async fn a_file_of_the_first_format_is_read_as_it_is_and_brought_forward_by_its_owner() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 2), None).await;
    finish(&store, &claim(&store).await[0]).await;
    let before = changes(&store).await;
    store.close();
    back_to_the_first_format(&file.path);

    let tasks: Vec<Change> = before.into_iter().filter(|change| matches!(change.what, Changed::Task { .. })).collect();
    let reader = file.open_to_read();
    assert_eq!(changes(&reader).await, tasks);
    assert_eq!(reader.newest().await.unwrap(), tasks.last().unwrap().position);
    assert_eq!(reader.tokens().await.unwrap(), []);
    assert_eq!(reader.plan(&plan_id("p")).await.unwrap().unwrap().counts.completed, 1);
    let all = PlanQuery { open_only: false, after: None, limit: 10 };
    assert_eq!(reader.plans(all).await.unwrap().items.len(), 1);
    let waits = reader.task(&TaskId::parse("p-1").unwrap()).await.unwrap().unwrap();
    assert!(!waits.waits_for_person);

    let store = file.open();
    assert_eq!(changes(&store).await, tasks);
    submit(&store, plan("q", 1), Some("key")).await;
    store.put_token(token()).await.unwrap();
    assert_eq!(changes(&store).await.len(), tasks.len() + 2);
    // The reader from before sees it too.
    assert_eq!(reader.tokens().await.unwrap(), [token()]);
    drop(store);
    assert_eq!(file.open().tokens().await.unwrap(), [token()]);
}

#[tokio::test]
async fn in_a_file_from_before_there_were_messages_tasks_await_theirs() {
    let file = File::new();
    let store = file.open();
    let mut by_message = plan("p", 2);
    by_message.definition.settings.trigger = Trigger::Message;
    submit(&store, by_message, None).await;
    store.close();
    let older = "UPDATE task_runtimes SET queue = 0, flags = 0; DROP TABLE entries; PRAGMA user_version = 3";
    let connection = Connection::open(&file.path).unwrap();
    connection.execute_batch(NO_ERAS).unwrap();
    connection.execute_batch(older).unwrap();
    drop(connection);

    let reader = file.open_to_read();
    let all = |book| EntryQuery { book, after: None, limit: 10, now: NOW };
    assert_eq!(reader.entries(all(Book::Outbox)).await.unwrap().items, []);
    assert_eq!(reader.entry(Book::Outbox, "k", NOW).await.unwrap(), None);

    let store = file.open();
    assert!(claim(&store).await.is_empty());
    submit(&store, plan("q", 1), None).await;
    assert_eq!(claim(&store).await.len(), 1);
    let body = "{}".to_owned();
    let entry = Entry { book: Book::Outbox, key: "k".to_owned(), at: NOW, until: None, body };
    store.change_books(BookChange { keep: vec![entry.clone()], strike: Vec::new() }).await.unwrap();
    // The reader from before sees it too.
    assert_eq!(reader.entries(all(Book::Outbox)).await.unwrap().items, [entry]);
}

#[tokio::test]
async fn a_reader_beside_the_owner_sees_changes_and_tokens() {
    let file = File::new();
    let store = file.open();
    let reader_of_nothing = SqliteStore::open_to_read(file.path.with_extension("other"));
    assert!(matches!(reader_of_nothing, Err(StoreError::NotFound { .. })), "{reader_of_nothing:?}");
    let reader = file.open_to_read();
    assert_eq!(reader.newest().await.unwrap(), Position(0));
    submit(&store, plan("p", 2), None).await;
    for task in claim(&store).await {
        finish(&store, &task).await;
    }
    store.put_token(token()).await.unwrap();
    assert_eq!(reader.newest().await.unwrap(), store.newest().await.unwrap());
    assert_eq!(changes(&reader).await, changes(&store).await);
    assert_eq!(reader.tokens().await.unwrap(), [token()]);
    let refused = reader.put_token(token()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_damaged_row_is_left_out_of_the_changes_and_holds_up_nothing() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 3), None).await;
    let whole = changes(&store).await;
    let damage = "UPDATE events SET body = replace(body, 'TASK_CREATED', 'TASK_CRATED') WHERE pos = ?1";
    let damaged = whole[2].position;
    assert_eq!(Connection::open(&file.path).unwrap().execute(damage, [damaged.0]).unwrap(), 1);
    let rest: Vec<Change> = whole.into_iter().filter(|change| change.position != damaged).collect();
    assert_eq!(changes(&store).await, rest);
    assert_eq!(file.open_to_read().newest().await.unwrap(), rest.last().unwrap().position);
}

#[tokio::test]
async fn one_call_for_changes_looks_at_some_thousands_of_rows_and_says_how_far_it_got() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("large", 10_000), None).await;
    submit(&store, plan("small", 1), None).await;
    let mut query = ChangeQuery { after: Position(0), plan: Some(plan_id("small")), limit: 1000 };
    let (mut calls, mut found) = (0, 0);
    loop {
        let changes = store.changes(query.clone()).await.unwrap();
        assert!(changes.upto.0 - query.after.0 <= 5000);
        (calls, found) = (calls + 1, found + changes.items.len());
        query.after = changes.upto;
        if !changes.more {
            break;
        }
    }
    assert!(calls > 1);
    assert_eq!((found, query.after), (2, store.newest().await.unwrap()));
}

#[tokio::test]
async fn the_counts_of_a_large_plan_are_those_of_its_rows() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 300), None).await;
    let reader = file.open_to_read();
    let page = PlanQuery { open_only: false, after: None, limit: 1 };
    // Another process counts the rows; the owner knows.
    let agree = async |store: &SqliteStore| {
        let known = store.plan(&plan_id("p")).await.unwrap().unwrap();
        assert_eq!(Some(&known), reader.plan(&plan_id("p")).await.unwrap().as_ref());
        assert_eq!(store.plans(page.clone()).await.unwrap().items.first(), Some(&known));
        known
    };
    assert_eq!(agree(&store).await.counts.pending, 300);
    loop {
        let claimed = claim(&store).await;
        if claimed.is_empty() {
            break;
        }
        agree(&store).await;
        for task in &claimed {
            finish(&store, task).await;
        }
        agree(&store).await;
    }
    let ended = agree(&store).await;
    assert_eq!((ended.status, ended.counts.completed), (PlanStatus::Completed, 300));

    // More tasks, and a pause, and another owner.
    let grown = Submission {
        plan: Arc::new(plan("p", 301)),
        start: Start::AtOnce,
        resubmit: Resubmit::Update,
        request: None,
        entries: Vec::new(),
        now: NOW,
    };
    store.submit(grown).await.unwrap();
    assert_eq!(agree(&store).await.counts.pending, 1);
    let by = By { who: "ann".to_owned(), why: None };
    let pause = PlanChange { plan: plan_id("p"), command: PlanCommand::Pause, by, expected: None, now: NOW };
    let paused = store.change_plan(pause).await.unwrap();
    assert_eq!(agree(&store).await, paused);
    drop(store);
    assert_eq!(agree(&file.open()).await, paused);
}

/// The error that opening this file ends with.
fn refusal(file: &File) -> StoreError {
    SqliteStore::open(&file.path).map(drop).expect_err("it cannot be opened")
}

#[tokio::test]
async fn a_definition_that_was_changed_by_another_hand_is_not_run() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 1), None).await;
    store.close();
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("UPDATE plans SET definition = replace(definition, 'noop', 'nope')", []).unwrap();
    drop(hand);
    let refused = refusal(&file);
    assert!(matches!(&refused, StoreError::Damaged { what, .. } if what.contains("definition")), "{refused}");
    let read = file.open_to_read().definition(&plan_id("p")).await;
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
}

#[tokio::test]
async fn a_task_whose_row_contradicts_itself_is_set_aside_and_the_others_run() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 3), None).await;
    store.close();
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("UPDATE task_runtimes SET queue = 3 WHERE no = 2", []).unwrap();
    drop(hand);
    let store = file.open();
    let claimed: Vec<String> = claim(&store).await.into_iter().map(|held| held.key.id.to_string()).collect();
    assert_eq!(claimed, ["p-1", "p-3"]);
    let aside = store.task(&TaskId::parse("p-2").unwrap()).await.unwrap().unwrap();
    assert!(aside.set_aside.is_some_and(|why| why.contains("do not fit")));
}

#[tokio::test]
async fn a_task_under_another_name_or_tenant_is_told_as_damaged_and_the_others_run() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 3), None).await;
    store.close();
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("UPDATE task_configs SET id = 'q-1' WHERE no = 1", []).unwrap();
    hand.execute("UPDATE task_configs SET tenant = 'red' WHERE no = 2", []).unwrap();
    drop(hand);
    let store = file.open();
    let claimed: Vec<String> = claim(&store).await.into_iter().map(|held| held.key.id.to_string()).collect();
    assert_eq!(claimed, ["p-3"]);
    for id in ["q-1", "p-2"] {
        let damaged = store.task(&TaskId::parse(id).unwrap()).await.unwrap().unwrap();
        assert!(damaged.task.damage().is_some(), "{damaged:?}");
    }
}

/// Earlier versions left such locks when an update gave a task another tenant.
#[tokio::test]
async fn a_tenant_that_is_locked_by_a_task_of_another_is_free_again_once_the_file_is_opened() {
    let file = File::new();
    let store = file.open();
    let mut plan = plan("p", 2);
    plan.tasks[1].tenant = Some(Tenant::parse("red").unwrap());
    submit(&store, plan, None).await;
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("INSERT INTO locks (tenant, task, since, fence) VALUES ('red', 1, 0, 0)", []).unwrap();
    // In line, as a claim would have found it.
    hand.execute("UPDATE task_runtimes SET queue = 1 WHERE no = 2", []).unwrap();
    drop(hand);
    store.close();
    // Who moves the file to another store before that leaves the lock behind.
    let old = SqliteStore::open_to_move(&file.path).unwrap();
    let (plan, locks) = (PlanId::parse("p").unwrap(), old.locks().await.unwrap());
    assert_eq!((locks.len(), read_moved(&old, &plan, &locks).await.unwrap().unwrap().locks), (1, Vec::new()));
    drop(old);
    assert_eq!(claim(&file.open()).await.len(), 2);
}

#[tokio::test]
async fn a_creation_whose_checksum_is_no_number_sets_its_task_aside_and_the_others_run() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 2), None).await;
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("UPDATE events SET crc = 'none' WHERE task = 1", []).unwrap();
    drop(hand);
    let claimed = claim(&store).await;
    assert_eq!(claimed.iter().map(|held| held.key.no).collect::<Vec<_>>(), [2]);
    let first = store.task(&TaskId::parse("p-1").unwrap()).await.unwrap().unwrap();
    assert!(first.set_aside.is_some_and(|why| why.contains("checksum")));
}

/// Earlier versions took locks in without going on from their fences.
#[tokio::test]
async fn a_tenants_fence_grows_on_from_that_of_a_lock_that_is_ahead_of_the_log() {
    let file = File::new();
    let store = file.open();
    let mut plan = plan("p", 2);
    plan.tasks.iter_mut().for_each(|task| task.tenant = Some(Tenant::parse("red").unwrap()));
    submit(&store, plan, None).await;
    store.close();
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("INSERT INTO locks (tenant, task, since, fence) VALUES ('red', 1, 0, 1000000)", []).unwrap();
    drop(hand);
    let store = file.open();
    claim(&store).await;
    assert!(store.locks().await.unwrap()[0].fence > 1_000_000);
}

#[tokio::test]
async fn a_task_whose_row_is_lost_is_set_aside_and_the_others_run() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 3), None).await;
    store.close();
    let hand = Connection::open(&file.path).unwrap();
    hand.execute("UPDATE task_runtimes SET no = 1000 WHERE no = 1", []).unwrap();
    drop(hand);
    let store = file.open();
    let claimed: Vec<String> = claim(&store).await.into_iter().map(|held| held.key.id.to_string()).collect();
    assert_eq!(claimed, ["p-2", "p-3"]);
    let aside = store.task(&TaskId::parse("p-1").unwrap()).await.unwrap().unwrap();
    assert_eq!(aside.set_aside.as_deref(), Some("its row is lost"));
    assert_eq!(store.plan(&plan_id("p")).await.unwrap().unwrap().counts.total, 3);
}

#[tokio::test]
async fn a_queue_whose_index_is_damaged_is_found_out_and_nobody_in_it_is_lost() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 3), None).await;
    store.close();
    // While the index is said to be of other rows, a change of these does not reach it.
    for (of, others) in [("queue IS NOT NULL", "queue = 77"), ("queue = 77", "queue IS NOT NULL")] {
        let hand = Connection::open(&file.path).unwrap();
        hand.execute_batch(&format!(
            "PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = replace(sql, '{of}', '{others}') WHERE name = 'task_runtimes_queue'; \
             PRAGMA writable_schema = OFF"
        ))
        .unwrap();
        drop(hand);
        let hand = Connection::open(&file.path).unwrap();
        if others == "queue = 77" {
            hand.execute("UPDATE task_runtimes SET rank = 5 WHERE no = 2", []).unwrap();
        }
    }
    let verdict = |file: &File| -> String {
        Connection::open(&file.path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
    };
    assert_ne!(verdict(&file), "ok");
    let store = file.open();
    assert_eq!(claim(&store).await.len(), 3);
    store.close();
    assert_eq!(verdict(&file), "ok");
}

#[tokio::test]
async fn a_log_that_is_damaged_before_its_end_is_refused_and_left_as_it_is() {
    let file = File::new();
    let store = file.open();
    submit(&store, plan("p", 1), None).await;
    let held = claim(&store).await.remove(0);
    finish(&store, &held).await;
    let copy = File::new();
    let log = |path: &Path| path.with_extension("db-wal");
    std::fs::copy(&file.path, &copy.path).unwrap();
    std::fs::copy(log(&file.path), log(&copy.path)).unwrap();
    store.close();
    let good = std::fs::read(log(&copy.path)).unwrap();
    let frame = 24 + 4096;
    let frames = (good.len() - 32) / frame;
    // The header, a page of the first transaction, and a checksum in the middle.
    for at in [20, 32 + 24 + 100, 32 + frames / 2 * frame + 17] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(log(&copy.path), &bad).unwrap();
        let refused = refusal(&copy);
        assert!(matches!(&refused, StoreError::Damaged { what, .. } if what.contains("store.db-wal")), "{refused}");
        let read = SqliteStore::open_to_read(&copy.path).map(drop);
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
        assert_eq!(std::fs::read(log(&copy.path)).unwrap(), bad, "who looks at it changes nothing");
    }
    // What was cut off is what a loss of power leaves: the last transaction was never acknowledged.
    std::fs::write(log(&copy.path), &good[..good.len() - 100]).unwrap();
    let store = copy.open();
    assert_ne!(store.plan(&plan_id("p")).await.unwrap().unwrap().status, PlanStatus::Completed);
}

#[tokio::test]
async fn a_file_that_another_program_has_locked_holds_up_nobody_who_does_not_write() {
    let file = File::new();
    let store = Arc::new(file.open());
    submit(&store, plan("p", 1), None).await;
    let other = Connection::open(&file.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let key = milepost_store::TaskRef { id: TaskId::parse("p-1").unwrap(), no: 1 };
    let note = milepost_store::Note { key, progress: Some((1, 2)), output: Vec::new() };
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.note(vec![note]).await }
    });
    // On this one thread, nothing else would go on if the write waited here.
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!writing.is_finished(), "the file is locked");
    other.execute_batch("ROLLBACK").unwrap();
    writing.await.unwrap().unwrap();
}
