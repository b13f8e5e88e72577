//! Several nodes on one database: who may write, who takes over, and what they tell each other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::message::Arrival;
use milepost_core::plan::{PlanCommand, Recovery, Trigger};
use milepost_core::task::{By, Command, TaskStatus};
use milepost_core::time::Millis;
use milepost_store::{
    Answered, Beat, Book, BookChange, ClaimRequest, Commit, Entry, EntryQuery, EventQuery, Holder, LeaseChange, Letter,
    LogChunk, LogQuery, Membership, MovedPlan, MovedTask, MysqlStore, PlanChange, RequestKey, Resubmit, Start, Store,
    StoreError, Submission, Wake, read_moved,
};

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/given.rs"]
mod given;
#[path = "support/patience.rs"]
mod patience;
#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/mysql.rs"]
mod support;

use given::{claim, decision, finish, ids, node, now, plan, submit};
use patience::PATIENCE;
use support::Database;

/// Long enough for a few round trips on a busy machine, short enough to wait for.
const SHORT: Millis = Millis::new(600);

fn by() -> By {
    By { who: "ann".to_owned(), why: None }
}

/// Long enough for a lease of `SHORT` to have run out by the store's clock.
async fn past_the_lease() {
    tokio::time::sleep(SHORT.as_duration() + Duration::from_millis(100)).await;
}

macro_rules! database {
    () => {
        match support::server() {
            Some(server) => Database::create(&server).await,
            None => return,
        }
    };
}

#[tokio::test]
async fn nodes_that_claim_at_once_never_share_a_task_or_a_tenant() {
    let database = database!();
    let names: Vec<String> = (0..120).map(|n| format!("t{n}")).collect();
    let tenants: Vec<String> = (0..120).map(|n| format!("tenant-{}", n % 60)).collect();
    let tasks: Vec<_> = names.iter().zip(&tenants).map(|(name, tenant)| (&**name, Some(&**tenant))).collect();
    let first = node(&database, "a", Millis::from_secs(15)).await;
    submit(&first, plan("p", &tasks, |settings| settings.max_concurrency = 50)).await;
    let mut nodes = vec![first];
    for name in ["b", "c"] {
        nodes.push(node(&database, name, Millis::from_secs(15)).await);
    }
    let claims = nodes.into_iter().map(|store| {
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..12 {
                taken.extend(claim(&store, "node", 4).await.unwrap().tasks);
            }
            (store, taken)
        })
    });
    let (mut seen, mut held, mut stores) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for claimed in claims {
        let (store, taken) = claimed.await.unwrap();
        stores.push(store);
        for stored in taken {
            assert!(seen.insert(stored.key.id.clone()), "{} was claimed twice", stored.key.id);
            assert!(held.insert(stored.task.spec().tenant.clone()), "two tasks have one tenant");
        }
    }
    assert_eq!(seen.len(), 50, "as many as the plan runs at once");
}

#[tokio::test]
async fn the_tasks_of_a_node_that_falls_silent_are_taken_over_and_its_late_commit_is_fenced() {
    let database = database!();
    let (a, b) = (node(&database, "a", SHORT).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", Some("tenant"))], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    assert!(ids(&claim(&b, "b", 1).await.unwrap()).is_empty());
    past_the_lease().await;
    let taken = claim(&b, "b", 1).await.unwrap().tasks.remove(0);
    assert_eq!((taken.key.id.as_str(), taken.task.takeovers()), ("t", 1));
    let late = a.commit(finish(&held)).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert!(claim(&a, "a", 1).await.is_err(), "a lost node claims nothing");
    b.commit(finish(&taken)).await.unwrap();
    let row = a.task(&taken.key.id).await.unwrap().unwrap();
    assert_eq!(row.task.status(), TaskStatus::Completed);
    // It hears of it at its next beat, and is a member again.
    assert_eq!(a.beat(Beat::default()).await.unwrap().losses, 1);
    submit(&a, plan("q", &[("u", None)], |_| {})).await;
    assert_eq!(ids(&claim(&a, "a", 1).await.unwrap()), ["u"]);
}

/// Every commit looks at the leases, so it need not be a beat that finds one run out.
#[tokio::test]
async fn a_node_whose_commit_finds_another_gone_is_called_to_take_up_its_tasks() {
    let database = database!();
    let (a, b) = (node(&database, "a", SHORT).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&b, plan("p", &[("t", None), ("u", None)], |settings| settings.max_concurrency = 2)).await;
    assert_eq!(ids(&claim(&a, "a", 1).await.unwrap()), ["t"]);
    let held = claim(&b, "b", 1).await.unwrap().tasks.remove(0);
    while tokio::time::timeout(Duration::from_secs(2), b.called()).await.is_ok() {}
    past_the_lease().await;
    b.commit(finish(&held)).await.unwrap();
    tokio::time::timeout(PATIENCE, b.called()).await.expect("it is called");
    assert_eq!(ids(&claim(&b, "b", 1).await.unwrap()), ["t"]);
}

#[tokio::test]
async fn a_late_node_goes_on_if_nobody_was_let_in() {
    let database = database!();
    let a = node(&database, "a", SHORT).await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    past_the_lease().await;
    assert_eq!(a.beat(Beat::default()).await.unwrap().losses, 0);
    past_the_lease().await;
    a.commit(finish(&held)).await.unwrap();
}

/// As when the answer to its beginning anew is lost.
#[tokio::test]
async fn a_session_that_the_same_process_began_is_lost_and_not_anothers() {
    let database = database!();
    let node = || async { MysqlStore::open(&database.url(), Membership::node("a", "boot")).await.unwrap() };
    let store = node().await;
    let _unheard = node().await;
    assert_eq!(store.beat(Beat::default()).await.unwrap().losses, 1);
    submit(&store, plan("p", &[("t", None)], |_| {})).await;
    assert_eq!(ids(&claim(&store, "a", 1).await.unwrap()), ["t"]);
}

#[tokio::test]
async fn beats_keep_a_lease_and_tell_when_another_may_run_out() {
    let database = database!();
    // It is to be kept, also by a test that gets no processor for a while.
    let lease = Millis::from_secs(4);
    let (a, b) = (node(&database, "a", lease).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    for _ in 0..4 {
        tokio::time::sleep(lease.as_duration() / 3).await;
        assert_eq!(a.beat(Beat { capacity: 7, in_hand: 1 }).await.unwrap().losses, 0);
        assert!(ids(&claim(&b, "b", 1).await.unwrap()).is_empty());
    }
    let look_again = b.beat(Beat::default()).await.unwrap().look_again.expect("there is another node");
    assert!(look_again <= Millis::new(lease.get() + 1), "{look_again:?}");
    let nodes = b.nodes().await.unwrap();
    let seen: Vec<_> = nodes.iter().map(|node| (&*node.name, node.live, node.in_hand, node.capacity)).collect();
    assert_eq!(seen, [("a", true, 1, 7), ("b", true, 0, 0)]);
    a.commit(finish(&held)).await.unwrap();
    tokio::time::sleep(lease.as_duration() + Duration::from_millis(100)).await;
    assert!(!b.nodes().await.unwrap()[0].live);
}

#[tokio::test]
async fn a_node_that_comes_back_under_its_name_takes_its_own_place_at_once() {
    let database = database!();
    let old = node(&database, "a", Millis::from_secs(15)).await;
    submit(&old, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&old, "a", 1).await.unwrap().tasks.remove(0);
    let new = node(&database, "a", Millis::from_secs(15)).await;
    assert!(new.task(&held.key.id).await.unwrap().unwrap().orphaned);
    assert!(matches!(old.commit(finish(&held)).await, Err(StoreError::Fenced { .. })));
    let beat = old.beat(Beat::default()).await;
    assert!(matches!(beat, Err(StoreError::Owned { .. })), "{beat:?}");
    let taken = claim(&new, "a", 1).await.unwrap().tasks.remove(0);
    new.commit(finish(&taken)).await.unwrap();
}

#[tokio::test]
async fn a_node_that_leaves_gives_its_tasks_up_at_once() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    claim(&a, "a", 1).await.unwrap();
    a.leave().await.unwrap();
    assert_eq!(ids(&claim(&b, "b", 1).await.unwrap()), ["t"]);
    assert!(claim(&a, "a", 1).await.is_err());
}

#[tokio::test]
async fn a_visitor_looks_and_asks_and_runs_nothing() {
    let database = database!();
    let a = node(&database, "a", Millis::from_secs(15)).await;
    let visitor = MysqlStore::open(&database.url(), Membership::visitor()).await.unwrap();
    submit(&visitor, plan("p", &[("t", None), ("u", None)], |_| {})).await;
    assert!(ids(&claim(&visitor, "v", 10).await.unwrap()).is_empty());
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    assert!(matches!(visitor.commit(finish(&held)).await, Err(StoreError::Fenced { .. })));
    let waiting = visitor.task(&TaskId::parse("u").unwrap()).await.unwrap().unwrap();
    let cancel = Commit { holder: Holder::Operator, ..decision(&waiting, Command::Cancel(by())) };
    visitor.commit(cancel).await.unwrap();
    assert_eq!(visitor.nodes().await.unwrap().len(), 1);
    assert!(visitor.letters().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_letter_reaches_the_node_that_holds_the_task_and_its_answer_comes_back() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None), ("idle", None)], |settings| settings.max_concurrency = 1)).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    // What it was called for so far is of no interest.
    while tokio::time::timeout(Duration::from_millis(1500), a.called()).await.is_ok() {}
    let letter = Letter { id: "one".to_owned(), task: held.key.id.clone(), body: "please 'pause' \\ é".to_owned() };
    let no = b.post(letter.clone()).await.unwrap().expect("a live node holds it");
    tokio::time::timeout(PATIENCE, a.called()).await.expect("the holder is called");
    let letters = a.letters().await.unwrap();
    assert_eq!((letters.len(), letters[0].no, &letters[0].letter), (1, no, &letter));
    assert!(b.letters().await.unwrap().is_empty());
    assert_eq!(b.answer_to(no).await.unwrap(), Answered::NotYet);
    a.answer(no, "done".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, b.called()).await.expect("whoever asked is called");
    assert_eq!(b.answer_to(no).await.unwrap(), Answered::With("done".to_owned()));
    assert!(a.letters().await.unwrap().is_empty());
    let nobody = Letter { id: "two".to_owned(), task: TaskId::parse("idle").unwrap(), body: String::new() };
    assert_eq!(b.post(nobody).await.unwrap(), None);
}

#[tokio::test]
async fn a_letter_that_is_posted_again_is_still_one_letter() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    claim(&a, "a", 1).await.unwrap();
    let letter = |id: &str| Letter { id: id.to_owned(), task: TaskId::parse("t").unwrap(), body: "go".to_owned() };
    let no = b.post(letter("one")).await.unwrap().expect("a live node holds it");
    assert_eq!(b.post(letter("one")).await.unwrap(), Some(no));
    assert_eq!(a.letters().await.unwrap().len(), 1);
    a.answer(no, "done".to_owned()).await.unwrap();
    assert_eq!(b.post(letter("one")).await.unwrap(), Some(no));
    assert!(a.letters().await.unwrap().is_empty(), "it is answered already");
    assert_ne!(b.post(letter("two")).await.unwrap(), Some(no));
}

#[tokio::test]
async fn a_node_is_called_when_another_brings_work_and_not_by_its_own() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    while tokio::time::timeout(Duration::from_millis(1500), b.called()).await.is_ok() {}
    submit(&b, plan("own", &[("s", None)], |_| {})).await;
    claim(&b, "b", 10).await.unwrap();
    let called = tokio::time::timeout(Duration::from_millis(2500), b.called()).await;
    assert!(called.is_err(), "it was called for what it did itself");
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    tokio::time::timeout(PATIENCE, b.called()).await.expect("there is something to claim");
    assert_eq!(ids(&claim(&b, "b", 10).await.unwrap()), ["t"]);
}

#[tokio::test]
async fn a_tenant_lock_is_renewed_while_somebody_has_it_and_opens_when_nobody_comes() {
    let database = database!();
    let lock_ttl = Millis::from_secs(4);
    let open = |name: &'static str, lease| {
        let url = database.url();
        async move {
            let membership = Membership { lease, lock_ttl, ..Membership::node(name, support::unique("boot")) };
            MysqlStore::open(&url, membership).await.unwrap()
        }
    };
    let (a, b) = (open("a", SHORT).await, open("b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", Some("tenant"))], |settings| settings.recovery = Some(Recovery::Manual))).await;
    claim(&a, "a", 1).await.unwrap();
    submit(&b, plan("q", &[("u", Some("tenant"))], |_| {})).await;
    assert!(ids(&claim(&b, "b", 10).await.unwrap()).is_empty());
    let first = b.locks().await.unwrap().remove(0);
    // A third of its time has to pass before it is renewed.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        a.beat(Beat::default()).await.unwrap();
    }
    let renewed = b.locks().await.unwrap().remove(0);
    assert!(renewed.expires_at > first.expires_at && renewed.fence == first.fence, "{renewed:?}, {first:?}");
    // Its node is gone, its plan waits for a person, and the lock is nobody's after a while.
    tokio::time::sleep(lock_ttl.as_duration() + Duration::from_millis(100)).await;
    b.beat(Beat::default()).await.unwrap();
    assert!(b.locks().await.unwrap().is_empty());
    assert_eq!(ids(&claim(&b, "b", 10).await.unwrap()), ["u"]);
    // The one that lost it has to wait for it now.
    let request = ClaimRequest {
        node: "b".into(),
        only: Some(PlanId::parse("p").unwrap()),
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit: 10,
        now: Some(now()),
    };
    assert!(ids(&b.claim(request).await.unwrap()).is_empty());
    let waiting = b.task(&TaskId::parse("t").unwrap()).await.unwrap().unwrap();
    assert_eq!(waiting.blocked_by.as_deref(), Some("q:u"));
}

#[tokio::test]
async fn nodes_that_start_at_once_make_the_tables_once() {
    let database = database!();
    let starts: Vec<_> = (0..5)
        .map(|n| {
            let url = database.url();
            tokio::spawn(async move {
                let membership = Membership::node(format!("node-{n}"), support::unique("boot"));
                MysqlStore::open(&url, membership).await.unwrap()
            })
        })
        .collect();
    let mut stores = Vec::new();
    for start in starts {
        stores.push(start.await.unwrap());
    }
    assert_eq!(stores[0].nodes().await.unwrap().len(), 5);
    database.execute("INSERT INTO milepost_format VALUES (99)").await;
    let refused = MysqlStore::open(&database.url(), Membership::visitor()).await;
    assert!(matches!(refused, Err(StoreError::Format { .. })), "{refused:?}");
}

#[tokio::test]
async fn starting_a_plan_prepares_its_units_as_datatrace_does() {
    let database = database!();
    let a = node(&database, "a", SHORT).await;
    let tasks = [("done", None), ("lost", None), ("missing", None), ("waits", None)];
    submit(&a, plan("p", &tasks, |_| {})).await;
    let claimed = claim(&a, "a", 2).await.unwrap();
    a.commit(finish(&claimed.tasks[0])).await.unwrap();
    let change =
        |command| PlanChange { plan: PlanId::parse("p").unwrap(), command, by: by(), expected: None, now: now() };
    a.change_plan(change(PlanCommand::Pause)).await.unwrap();
    // A unit without a runtime row, a row that belongs to no unit, and a node that is gone.
    database.execute("DELETE FROM task_unit_runtimes WHERE unit_name = 'missing'").await;
    let orphan = "INSERT INTO task_unit_runtimes (id, task_id, unit_name, status, turn, queue, version, lease, done, \
                  total, attempt, flags, updated_at) SELECT 4711, id, 'orphan', 'pending', 0, 0, 1, 0, 0, 1, 0, 0, 0 \
                  FROM sync_tasks";
    database.execute(orphan).await;
    let b = node(&database, "b", Millis::from_secs(15)).await;
    past_the_lease().await;
    let row = b.change_plan(change(PlanCommand::Resume)).await.unwrap();
    let counts = row.counts;
    assert_eq!((counts.total, counts.completed, counts.running, counts.pending), (4, 1, 1, 2));
    let sql = "SELECT unit_name, status FROM task_unit_runtimes ORDER BY id";
    let rows: Vec<(String, String)> = database.ask(sql).await;
    let rows: Vec<_> = rows.iter().map(|(unit, status)| (&**unit, &**status)).collect();
    assert_eq!(rows, [("done", "completed"), ("lost", "running"), ("missing", "pending"), ("waits", "pending")]);
    // What ran without a live lease is taken up again first, what was missing like any other.
    assert_eq!(ids(&claim(&b, "b", 10).await.unwrap()), ["lost", "missing", "waits"]);
}

#[tokio::test]
async fn tenants_that_differ_by_a_space_are_two() {
    let database = database!();
    let a = node(&database, "a", Millis::from_secs(15)).await;
    submit(&a, plan("p", &[("t", Some("tenant")), ("u", Some("tenant ")), ("v", Some("Tenant"))], |_| {})).await;
    assert_eq!(ids(&claim(&a, "a", 10).await.unwrap()), ["t", "u", "v"]);
    assert_eq!(a.locks().await.unwrap().len(), 3);
}

#[tokio::test]
async fn what_the_server_refuses_fails_alone() {
    let database = database!();
    let a = Arc::new(node(&database, "a", Millis::from_secs(15)).await);
    let submissions = (0..20).map(|n| {
        let name = format!("t{n}");
        let plan = Arc::new(plan(&format!("p{n}"), &[(&name, None)], |_| {}));
        let key = if n == 7 { "k".repeat(5000) } else { format!("k{n}") };
        let request = Some(RequestKey { key, digest: [0; 32] });
        let submission = Submission {
            plan,
            start: Start::AtOnce,
            resubmit: Resubmit::Same,
            request,
            entries: Vec::new(),
            now: now(),
        };
        let store = a.clone();
        tokio::spawn(async move { store.submit(submission).await })
    });
    let submissions: Vec<_> = submissions.collect();
    for (n, submission) in submissions.into_iter().enumerate() {
        let submitted = submission.await.unwrap();
        assert_eq!(submitted.is_ok(), n != 7, "{n}: {submitted:?}");
    }
    assert_eq!(claim(&a, "a", 100).await.unwrap().tasks.len(), 19);
}

#[tokio::test]
async fn what_is_too_large_for_the_server_fails_alone() {
    let database = database!();
    let a = Arc::new(node(&database, "a", Millis::from_secs(15)).await);
    let most: Vec<usize> = database.ask("SELECT @@max_allowed_packet").await;
    let submissions = (0..5).map(|n| {
        let name = format!("t{n}");
        let mut plan = plan(&format!("p{n}"), &[(&name, None)], |_| {});
        if n == 2 {
            plan.tasks[0].input = "x".repeat(most[0]).into();
        }
        let submission = Submission {
            plan: Arc::new(plan),
            start: Start::AtOnce,
            resubmit: Resubmit::Same,
            request: None,
            entries: Vec::new(),
            now: now(),
        };
        let store = a.clone();
        tokio::spawn(async move { store.submit(submission).await })
    });
    let submissions: Vec<_> = submissions.collect();
    for (n, submission) in submissions.into_iter().enumerate() {
        let submitted = submission.await.unwrap();
        assert_eq!(submitted.is_ok(), n != 2, "{n}: {:?}", submitted.err());
    }
    assert_eq!(claim(&a, "a", 100).await.unwrap().tasks.len(), 4);
}

#[tokio::test]
async fn a_plan_moves_in_with_its_history_and_goes_on_where_it_was() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, database!());
    let tasks = [("done", None), ("asleep", Some("one")), ("left", Some("two")), ("waits", Some("one"))];
    submit(&a, plan("p", &tasks, |settings| settings.max_concurrency = 3)).await;
    let claimed = claim(&a, "a", 3).await.unwrap().tasks;
    a.commit(finish(&claimed[0])).await.unwrap();
    let id = PlanId::parse("p").unwrap();
    let mut moved = Vec::new();
    for (task, _) in tasks {
        let id = TaskId::parse(task).unwrap();
        let stored = a.task(&id).await.unwrap().unwrap();
        let events = a.events(EventQuery { task: id, after: 0, limit: 1000 }).await.unwrap();
        let events = events.into_iter().map(|event| event.record).collect();
        let wake = if task == "asleep" { Wake::At(now() + Millis::new(500)) } else { Wake::Recovery };
        let chunk =
            LogChunk { stage: StageName::parse("one").unwrap(), attempt: 1, at: now(), bytes: vec![0, 39, 255] };
        moved.push(MovedTask { task: stored.task, events, wake, output: vec![chunk] });
    }
    let whole = MovedPlan {
        plan: a.definition(&id).await.unwrap().unwrap(),
        row: a.plan(&id).await.unwrap().unwrap(),
        tasks: moved,
        locks: a.locks().await.unwrap(),
    };
    let other = node(&b, "b", Millis::from_secs(15)).await;
    other.import(whole.clone()).await.unwrap();
    assert_eq!(other.plan(&id).await.unwrap().unwrap(), whole.row);
    assert_eq!(other.definition(&id).await.unwrap().unwrap(), whole.plan);
    for task in &whole.tasks {
        let id = &task.task.spec().id;
        assert_eq!(other.task(id).await.unwrap().unwrap().task, task.task);
        let logs = other.logs(LogQuery { task: id.clone(), stage: None, attempt: None }).await.unwrap();
        assert_eq!(logs, task.output);
    }
    assert_eq!(other.locks().await.unwrap().len(), 2);
    assert!(matches!(other.import(whole).await, Err(StoreError::Clash(_))));
    let claimed = claim(&other, "b", 10).await.unwrap();
    assert_eq!((ids(&claimed), claimed.next_due), (vec!["left"], Some(now() + Millis::new(500))));
}

#[tokio::test]
async fn a_log_that_is_too_large_for_one_packet_moves_in() {
    let database = database!();
    let store = node(&database, "a", Millis::from_secs(15)).await;
    let most: Vec<usize> = database.ask("SELECT @@max_allowed_packet").await;
    submit(&store, plan("p", &[("t", None)], |_| {})).await;
    let (id, task) = (PlanId::parse("p").unwrap(), TaskId::parse("t").unwrap());
    let mut held = claim(&store, "a", 1).await.unwrap().tasks.remove(0);
    // Each is small enough, and all together are not.
    let (count, reason) = (30, "x".repeat(most[0] / 25));
    for _ in 0..count {
        let interrupted = decision(&held, Command::Interrupt { reason: reason.clone() });
        let lease = LeaseChange::Release(Wake::Recovery);
        store.commit(Commit { lease, ..interrupted }).await.unwrap();
        held = claim(&store, "a", 1).await.unwrap().tasks.remove(0);
    }
    let locks = store.locks().await.unwrap();
    let moved = read_moved(&store, &id, &locks).await.unwrap().unwrap();
    let empty = database!();
    let other = node(&empty, "b", Millis::from_secs(15)).await;
    other.import(moved.clone()).await.unwrap();
    assert_eq!(other.task(&task).await.unwrap().unwrap().task, moved.tasks[0].task);
}

/// The message is here, as whoever heard it commits it.
async fn receive(store: &MysqlStore, task: &str, message: &str) -> Commit {
    let message = Arc::new(Arrival {
        id: message.into(),
        deadline: None,
        remembered_until: now() + Millis::from_secs(3600),
        text: "{}".into(),
        origin: None,
    });
    let waiting = store.task(&TaskId::parse(task).unwrap()).await.unwrap().unwrap();
    Commit { holder: Holder::Operator, ..decision(&waiting, Command::Receive(message)) }
}

#[tokio::test]
async fn a_message_that_one_node_took_in_is_known_to_every_other() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None), ("u", None)], |settings| settings.trigger = Trigger::Message)).await;
    assert!(ids(&claim(&b, "b", 10).await.unwrap()).is_empty(), "nobody has sent a message");
    a.commit(receive(&a, "t", "m").await).await.unwrap();
    let again = b.commit(receive(&b, "u", "m").await).await;
    assert!(matches!(&again, Err(StoreError::Kept { book: Book::Messages, key }) if key == "m"), "{again:?}");
    let refused = a.task(&TaskId::parse("u").unwrap()).await.unwrap().unwrap();
    assert!(refused.task.awaits_message());
    b.commit(receive(&b, "u", "M").await).await.unwrap();
    assert_eq!(ids(&claim(&b, "b", 10).await.unwrap()), ["t", "u"]);
}

#[tokio::test]
async fn a_message_that_was_heard_before_refuses_one_commit_of_a_group() {
    let database = database!();
    let a = Arc::new(node(&database, "a", Millis::from_secs(15)).await);
    let names: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let tasks: Vec<_> = names.iter().map(|name| (&**name, None)).collect();
    submit(&a, plan("p", &tasks, |settings| settings.trigger = Trigger::Message)).await;
    a.commit(receive(&a, "t0", "t7").await).await.unwrap();
    let mut commits = Vec::new();
    for name in &names[1..] {
        commits.push(receive(&a, name, name).await);
    }
    let before = a.stats();
    let commits: Vec<_> = commits
        .into_iter()
        .map(|commit| {
            let store = a.clone();
            tokio::spawn(async move { store.commit(commit).await })
        })
        .collect();
    for (name, commit) in names[1..].iter().zip(commits) {
        let committed = commit.await.unwrap();
        let kept = matches!(&committed, Err(StoreError::Kept { book: Book::Messages, key }) if key == "t7");
        assert_eq!((committed.is_ok(), kept), (name != "t7", name == "t7"), "{name}: {committed:?}");
    }
    assert!(a.stats().batches - before.batches < 19, "they were written in groups");
    assert_eq!(claim(&a, "a", 100).await.unwrap().tasks.len(), 19);
}

#[tokio::test]
async fn what_one_node_has_to_say_another_reads_and_strikes_out() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None)], |settings| settings.trigger = Trigger::Message)).await;
    a.commit(receive(&a, "t", "m").await).await.unwrap();
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    a.commit(finish(&held)).await.unwrap();
    let outbox = || EntryQuery { book: Book::Outbox, after: None, limit: 10, now: now() };
    let said = b.entries(outbox()).await.unwrap().items;
    let key = said[0].key.clone();
    assert_eq!(a.entry(Book::Outbox, &key, now()).await.unwrap().as_ref(), said.first());
    b.change_books(BookChange { keep: Vec::new(), strike: vec![(Book::Outbox, key)] }).await.unwrap();
    assert!(a.entries(outbox()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_commit_takes_no_more_round_trips_for_having_something_to_say() {
    let database = database!();
    let a = node(&database, "a", Millis::from_secs(15)).await;
    submit(&a, plan("silent", &[("s", None), ("open", None)], |_| {})).await;
    let told = [("t", None), ("waits", None)];
    submit(&a, plan("told", &told, |settings| settings.trigger = Trigger::Message)).await;
    a.commit(receive(&a, "t", "m").await).await.unwrap();
    let claimed = claim(&a, "a", 10).await.unwrap();
    let mut trips = Vec::new();
    for held in claimed.tasks.iter().filter(|held| held.key.id.as_str() != "open") {
        let before = a.stats().round_trips;
        a.commit(finish(held)).await.unwrap();
        trips.push(a.stats().round_trips - before);
    }
    assert_eq!(trips, [2, 2]);
}

#[tokio::test]
async fn a_message_that_one_node_took_in_calls_no_other() {
    let database = database!();
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, node(&database, "b", Millis::from_secs(15)).await);
    submit(&a, plan("p", &[("t", None), ("u", None)], |settings| settings.trigger = Trigger::Message)).await;
    while tokio::time::timeout(Duration::from_millis(1500), b.called()).await.is_ok() {}
    a.commit(receive(&a, "t", "one").await).await.unwrap();
    let called = tokio::time::timeout(Duration::from_millis(2500), b.called()).await;
    assert!(called.is_err(), "it was called for a message that another has taken in");
    // A visitor runs nothing, so what it takes in is for everybody.
    let visitor = MysqlStore::open(&database.url(), Membership::visitor()).await.unwrap();
    visitor.commit(receive(&visitor, "u", "two").await).await.unwrap();
    tokio::time::timeout(PATIENCE, b.called()).await.expect("there is something to claim");
    assert_eq!(ids(&claim(&b, "b", 10).await.unwrap()), ["t", "u"]);
}

#[tokio::test]
async fn what_is_over_goes_with_a_later_write_to_its_book() {
    let database = database!();
    let a = node(&database, "a", Millis::from_secs(15)).await;
    let keep = |key: &str, at, until: Option<u64>| {
        let (key, until) = (key.to_owned(), until.map(|until| now() + Millis::new(until)));
        let entry = Entry { book: Book::Messages, key, at: now() + Millis::new(at), until, body: "{}".to_owned() };
        a.change_books(BookChange { keep: vec![entry], strike: Vec::new() })
    };
    for n in 0..300 {
        keep(&format!("m{n}"), 0, Some(10)).await.unwrap();
    }
    keep("stays", 0, None).await.unwrap();
    keep("m7", 10, Some(20)).await.unwrap();
    let left: Vec<u64> = database.ask("SELECT COUNT(*) FROM milepost_books").await;
    assert!((2..=300).contains(&left[0]), "{left:?}: some go at once, and not all");
    keep("new", 19, None).await.unwrap();
    let left: Vec<Vec<u8>> = database.ask("SELECT name FROM milepost_books ORDER BY no").await;
    assert_eq!(left, [b"stays".to_vec(), b"m7".to_vec(), b"new".to_vec()]);
}
