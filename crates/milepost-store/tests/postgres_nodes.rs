//! Several nodes on one PostgreSQL store: who has what, who may write, and who is told.

#[path = "support/patience.rs"]
mod patience;
#[path = "support/plans.rs"]
mod plans;
#[path = "support/relay.rs"]
mod relay;
#[path = "support/postgres.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::Tenant;
use milepost_core::plan::{Plan, Recovery};
use milepost_core::task::{By, Command, PlanStatus, StageResult, TaskStatus};
use milepost_core::time::Millis;
use milepost_store::{
    Answered, Beat, Commit, Holder, LeaseChange, Letter, Membership, MovedPlan, MovedTask, Note, PostgresStore, Store,
    StoreError, StoredTask, Wake,
};

use patience::PATIENCE;
use plans::{claim, decided, ends, finish, plan, submit, succeeds, task_id};
use relay::{Relay, port_of};
use support::{Schema, is_there};

/// Long enough for a loaded machine to do something in, short enough to wait for.
const SHORT: Millis = Millis::new(3_000);

async fn node(schema: &Schema, name: &str) -> Arc<PostgresStore> {
    open(schema, Membership::node(name, format!("boot of {name}"))).await
}

/// Of a node that is missed soon.
async fn hasty(schema: &Schema, name: &str) -> Arc<PostgresStore> {
    open(schema, Membership { lease: SHORT, ..Membership::node(name, "boot") }).await
}

async fn open(schema: &Schema, membership: Membership) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&schema.url, membership).await.unwrap())
}

/// A node behind a relay.
async fn by_relay(schema: &Schema) -> (Relay, Arc<PostgresStore>) {
    let port = port_of(&schema.url);
    let relay = Relay::to(port).await;
    let node = PostgresStore::open(&relay.url(&schema.url, port), Membership::node("a", "boot")).await.unwrap();
    (relay, Arc::new(node))
}

/// Until the server's clock says that a lease of this length is over.
async fn lapse(length: Millis) {
    tokio::time::sleep(length.as_duration() + Duration::from_millis(50)).await;
}

fn of_tenant(mut plan: Plan, tenant: impl Fn(usize) -> String) -> Plan {
    for (at, task) in plan.tasks.iter_mut().enumerate() {
        task.tenant = Some(Tenant::parse(tenant(at)).unwrap());
    }
    plan
}

fn at_most(mut plan: Plan, max_concurrency: u32) -> Plan {
    plan.definition.settings.max_concurrency = max_concurrency;
    plan
}

fn manual(mut plan: Plan) -> Plan {
    plan.definition.settings.recovery = Some(Recovery::Manual);
    plan
}

fn fails(held: &StoredTask, stage: usize) -> Commit {
    ends(held, stage, StageResult::Failure(Failure::retryable(ErrorType::Network, "no answer")))
}

fn cancelled(held: &StoredTask) -> Commit {
    decided(held, Command::Cancel(By { who: "ann".to_owned(), why: None }))
}

/// Until it listens, and has heard all that was said before.
async fn quiet(store: &PostgresStore) {
    store.called().await;
    while tokio::time::timeout(Duration::from_millis(500), store.called()).await.is_ok() {}
}

macro_rules! node_tests {
    ($(async fn $name:ident($schema:ident: &Schema) $body:block)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                async fn story($schema: &Schema) $body
                if is_there(stringify!($name)) {
                    let schema = Schema::new().await;
                    story(&schema).await;
                    schema.remove().await;
                }
            }
        )+
    };
}

// After the macro, which they use.
#[path = "postgres_nodes/collisions.rs"]
mod collisions;
#[path = "postgres_nodes/messages.rs"]
mod messages;

node_tests! {
    async fn nodes_that_claim_at_once_never_share_a_task_a_tenant_or_a_slot(schema: &Schema) {
        let nodes = [node(schema, "a").await, node(schema, "b").await, node(schema, "c").await];
        submit(&*nodes[0], at_most(of_tenant(plan("p", 60, 1), |at| format!("t{}", at % 30)), 25)).await;
        let claims = nodes.iter().map(|node| {
            let node = node.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                for _ in 0..6 {
                    taken.extend(claim(&*node, "n", 4).await.unwrap().tasks);
                }
                taken
            })
        });
        let (mut tasks, mut tenants) = (BTreeSet::new(), BTreeSet::new());
        for claimed in claims.collect::<Vec<_>>() {
            for stored in claimed.await.unwrap() {
                assert!(tasks.insert(stored.key.id.clone()));
                assert!(tenants.insert(stored.task.spec().tenant.clone()));
            }
        }
        assert_eq!(tasks.len(), 25);
        assert_eq!(nodes[1].locks().await.unwrap().len(), 25);
    }

    async fn a_silent_nodes_tasks_are_taken_over_and_it_can_write_nothing_any_more(schema: &Schema) {
        let (frozen, other) = (hasty(schema, "frozen").await, node(schema, "other").await);
        submit(&*other, of_tenant(plan("p", 2, 2), |at| format!("t{at}"))).await;
        let held = claim(&*frozen, "frozen", 1).await.unwrap().tasks.remove(0);
        let first = other.locks().await.unwrap().remove(0);
        let look = other.beat(Beat::default()).await.unwrap().look_again;
        assert!(look.is_some_and(|look| look <= SHORT), "{look:?}");
        assert!(!other.task(&held.key.id).await.unwrap().unwrap().orphaned);
        lapse(SHORT).await;
        assert!(other.task(&held.key.id).await.unwrap().unwrap().orphaned);
        let taken = claim(&*other, "other", 10).await.unwrap().tasks;
        assert_eq!(taken.len(), 2);
        assert!(taken[0].key == held.key && taken[0].epoch != held.epoch);
        assert!(other.locks().await.unwrap()[0].fence > first.fence);
        for late in [succeeds(&held, 0), cancelled(&held)] {
            let fenced = frozen.commit(late).await;
            assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        }
        assert!(claim(&*frozen, "frozen", 10).await.is_err());
        assert_eq!(frozen.beat(Beat::default()).await.unwrap().losses, 1);
        assert!(claim(&*frozen, "frozen", 10).await.unwrap().tasks.is_empty());
        for held in &taken {
            finish(&*other, held).await.unwrap();
        }
        let plan = other.plan(&taken[0].task.spec().plan).await.unwrap().unwrap();
        assert_eq!(plan.status, PlanStatus::Completed);
    }

    async fn a_late_node_that_nobody_has_missed_goes_on(schema: &Schema) {
        let late = hasty(schema, "late").await;
        submit(&*late, plan("p", 1, 2)).await;
        let held = claim(&*late, "late", 1).await.unwrap().tasks.remove(0);
        lapse(SHORT).await;
        late.commit(succeeds(&held, 0)).await.unwrap();
        lapse(SHORT).await;
        assert_eq!(late.beat(Beat { capacity: 8, in_hand: 1 }).await.unwrap().losses, 0);
        let row = late.nodes().await.unwrap().remove(0);
        assert_eq!((row.name.as_str(), row.live, row.in_hand, row.capacity), ("late", true, 1, 8));
    }

    async fn a_claim_whose_answer_is_lost_comes_with_the_next(schema: &Schema) {
        let (relay, node) = by_relay(schema).await;
        submit(&*node, plan("p", 1, 2)).await;
        relay.lose_the_answer_to("take_tasks");
        let lost = claim(&*node, "a", 1).await;
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
        let held = claim(&*node, "a", 1).await.unwrap().tasks.remove(0);
        assert!(claim(&*node, "a", 1).await.unwrap().tasks.is_empty());
        finish(&*node, &held).await.unwrap();
    }

    async fn a_claim_that_arrives_after_it_was_given_up_takes_nothing(schema: &Schema) {
        let (relay, node) = by_relay(schema).await;
        submit(&*node, plan("p", 1, 2)).await;
        let late = relay.hold_and_forget("take_tasks");
        let lost = claim(&*node, "a", 1).await;
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
        // The next claim has found that it had not arrived, and is about to take the task itself.
        let next = relay.hold("take_tasks");
        let claiming = tokio::spawn({
            let node = node.clone();
            async move { claim(&*node, "a", 1).await }
        });
        next.reached().await;
        late.deliver().await;
        next.release();
        let held = claiming.await.unwrap().unwrap().tasks.remove(0);
        finish(&*node, &held).await.unwrap();
    }

    async fn a_claim_that_nobody_waits_for_comes_with_the_next(schema: &Schema) {
        let (relay, node) = by_relay(schema).await;
        submit(&*node, plan("p", 1, 2)).await;
        let held = relay.hold("take_tasks");
        let claiming = tokio::spawn({
            let node = node.clone();
            async move { claim(&*node, "a", 1).await }
        });
        held.reached().await;
        claiming.abort();
        assert!(claiming.await.unwrap_err().is_cancelled());
        held.release();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let held = loop {
            assert!(tokio::time::Instant::now() < deadline, "held by the node, and nobody has it");
            if let Some(held) = claim(&*node, "a", 1).await.unwrap().tasks.pop() {
                break held;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        finish(&*node, &held).await.unwrap();
    }

    async fn a_claim_that_gets_nothing_comes_back_later_each_time(schema: &Schema) {
        let node = node(schema, "a").await;
        submit(&*node, plan("p", 1, 2)).await;
        let (person, connection) = tokio_postgres::connect(&schema.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        person.batch_execute("BEGIN; SELECT FROM task_runtimes FOR UPDATE").await.unwrap();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let claimed = claim(&*node, "a", 1).await.unwrap();
            assert!(claimed.tasks.is_empty());
            waits.push(claimed.next_due.expect("there is something to come back for").since(plans::NOW).get());
        }
        assert_eq!((waits[0], waits[1], waits[9]), (20, 40, 5120));
        let before = node.stats().round_trips;
        claim(&*node, "a", 1).await.unwrap();
        let asked = node.stats().round_trips - before;
        assert!(asked <= 3, "{asked} questions for a look");
        person.batch_execute("COMMIT").await.unwrap();
        assert_eq!(claim(&*node, "a", 1).await.unwrap().tasks.len(), 1);
    }

    async fn the_tasks_of_a_manual_plan_are_shown_as_interrupted_and_left_alone(schema: &Schema) {
        let (frozen, other) = (hasty(schema, "frozen").await, node(schema, "other").await);
        submit(&*other, manual(plan("p", 1, 2))).await;
        let held = claim(&*frozen, "frozen", 1).await.unwrap().tasks.remove(0);
        lapse(SHORT).await;
        assert!(claim(&*other, "other", 10).await.unwrap().tasks.is_empty());
        let stored = other.task(&held.key.id).await.unwrap().unwrap();
        assert!(stored.orphaned && stored.task.status() == TaskStatus::Running);
        // A person may decide, and the node that had it has lost it.
        let cancel = Commit { holder: Holder::Operator, ..cancelled(&stored) };
        other.commit(cancel).await.unwrap();
        assert!(frozen.commit(succeeds(&held, 0)).await.is_err());
    }

    async fn who_opens_under_a_name_takes_its_place_at_once(schema: &Schema) {
        let before = node(schema, "n").await;
        submit(&*before, plan("p", 1, 1)).await;
        let held = claim(&*before, "n", 1).await.unwrap().tasks.remove(0);
        let after = open(schema, Membership::node("n", "another boot")).await;
        let taken = claim(&*after, "n", 1).await.unwrap().tasks.remove(0);
        assert_eq!(taken.key, held.key);
        assert!(matches!(before.commit(succeeds(&held, 0)).await, Err(StoreError::Fenced { .. })));
        let owned = before.beat(Beat::default()).await;
        assert!(matches!(owned, Err(StoreError::Owned { .. })), "{owned:?}");
        assert_eq!(after.nodes().await.unwrap().len(), 1);
        finish(&*after, &taken).await.unwrap();
    }

    async fn a_session_that_the_same_process_began_is_lost_and_not_anothers(schema: &Schema) {
        // As when the answer to its beginning anew is lost.
        let store = node(schema, "n").await;
        let _unheard = node(schema, "n").await;
        assert_eq!(store.beat(Beat::default()).await.unwrap().losses, 1);
        submit(&*store, plan("p", 1, 1)).await;
        assert_eq!(claim(&*store, "n", 1).await.unwrap().tasks.len(), 1);
    }

    async fn a_node_that_leaves_leaves_its_tasks_to_others(schema: &Schema) {
        let (leaving, other) = (node(schema, "leaving").await, node(schema, "other").await);
        submit(&*other, plan("p", 1, 1)).await;
        let held = claim(&*leaving, "leaving", 1).await.unwrap().tasks.remove(0);
        leaving.leave().await.unwrap();
        assert_eq!(claim(&*other, "other", 1).await.unwrap().tasks[0].key, held.key);
        let live: Vec<bool> = other.nodes().await.unwrap().iter().map(|row| row.live).collect();
        assert_eq!(live, [false, true]);
    }

    async fn a_visitor_submits_and_asks_and_runs_nothing(schema: &Schema) {
        let (visitor, node) = (open(schema, Membership::visitor()).await, node(schema, "n").await);
        submit(&*visitor, plan("p", 1, 1)).await;
        assert!(claim(&*visitor, "nobody", 1).await.unwrap().tasks.is_empty());
        assert_eq!(visitor.nodes().await.unwrap().len(), 1);
        let letter = || Letter { id: "one".to_owned(), task: task_id("p-0"), body: "stop".to_owned() };
        assert_eq!(visitor.post(letter()).await.unwrap(), None);
        let held = claim(&*node, "n", 1).await.unwrap().tasks.remove(0);
        let operator = Commit { holder: Holder::Operator, ..cancelled(&held) };
        assert!(matches!(visitor.commit(operator).await, Err(StoreError::Fenced { .. })));
        // Only its node can do it, and is written to.
        let no = visitor.post(letter()).await.unwrap().expect("somebody has the task");
        let posted = node.letters().await.unwrap();
        assert_eq!((posted.len(), posted[0].no, &posted[0].letter), (1, no, &letter()));
        assert_eq!(visitor.answer_to(no).await.unwrap(), Answered::NotYet);
        node.answer(no, "done".to_owned()).await.unwrap();
        assert!(node.letters().await.unwrap().is_empty());
        assert_eq!(visitor.answer_to(no).await.unwrap(), Answered::With("done".to_owned()));
        assert!(visitor.letters().await.unwrap().is_empty());
    }

    async fn a_letter_that_is_posted_again_is_still_one_letter(schema: &Schema) {
        let (visitor, node) = (open(schema, Membership::visitor()).await, node(schema, "n").await);
        submit(&*visitor, plan("p", 1, 1)).await;
        claim(&*node, "n", 1).await.unwrap();
        let letter = |id: &str| Letter { id: id.to_owned(), task: task_id("p-0"), body: "go".to_owned() };
        let no = visitor.post(letter("one")).await.unwrap().expect("somebody has the task");
        assert_eq!(visitor.post(letter("one")).await.unwrap(), Some(no));
        assert_eq!(node.letters().await.unwrap().len(), 1);
        node.answer(no, "done".to_owned()).await.unwrap();
        assert_eq!(visitor.post(letter("one")).await.unwrap(), Some(no));
        assert!(node.letters().await.unwrap().is_empty(), "it is answered already");
        assert_ne!(visitor.post(letter("two")).await.unwrap(), Some(no));
    }

    async fn a_tenant_lock_is_renewed_by_any_node_and_opens_when_nobody_does(schema: &Schema) {
        let ttl = Millis::from_secs(4);
        let brief = Membership { lock_ttl: ttl, ..Membership::node("a", "boot") };
        let (a, b) = (open(schema, brief.clone()).await, open(schema, Membership {
            node: Membership::node("b", "boot").node, ..brief
        }).await);
        submit(&*a, of_tenant(plan("p", 2, 1), |_| "t".to_owned())).await;
        let held = claim(&*a, "a", 2).await.unwrap().tasks;
        assert_eq!(held.len(), 1);
        let first = b.locks().await.unwrap().remove(0);
        tokio::time::sleep(ttl.as_duration() / 2).await;
        b.beat(Beat::default()).await.unwrap();
        let renewed = b.locks().await.unwrap().remove(0);
        assert!(renewed.expires_at > first.expires_at && renewed.fence == first.fence, "{renewed:?}");
        lapse(ttl).await;
        assert!(b.locks().await.unwrap().is_empty());
        // The next in line may go, and the first has to get it again.
        let next = claim(&*b, "b", 2).await.unwrap().tasks;
        assert_eq!(next.len(), 1);
        assert_ne!(next[0].key, held[0].key);
        assert!(b.locks().await.unwrap()[0].fence > first.fence);
        finish(&*a, &held[0]).await.unwrap();
        assert_eq!(b.locks().await.unwrap().len(), 1, "only its owner gives a lock back");
    }

    async fn nodes_are_called_when_there_is_something_for_them(schema: &Schema) {
        let (a, b) = (node(schema, "a").await, node(schema, "b").await);
        quiet(&b).await;
        let called = async || tokio::time::timeout(PATIENCE, b.called()).await;
        submit(&*a, at_most(plan("p", 3, 1), 1)).await;
        called().await.expect("a new plan");
        let held = claim(&*a, "a", 1).await.unwrap().tasks.remove(0);
        finish(&*a, &held).await.unwrap();
        called().await.expect("a slot is free");
        let held = claim(&*b, "b", 1).await.unwrap().tasks.remove(0);
        a.post(Letter { id: "one".to_owned(), task: held.key.id.clone(), body: "stop".to_owned() }).await.unwrap();
        called().await.expect("a letter");
        b.answer(1, "done".to_owned()).await.unwrap();
        let (lease, wake) = (LeaseChange::Release(Wake::Recovery), b.clone());
        a.beat(Beat::default()).await.unwrap();
        wake.commit(Commit { lease, ..fails(&held, 0) }).await.unwrap();
        tokio::time::timeout(PATIENCE, a.called()).await.expect("a task that was given back");
    }

    async fn notes_made_at_once_go_together(schema: &Schema) {
        let node = node(schema, "a").await;
        submit(&*node, plan("p", 1, 1)).await;
        let held = claim(&*node, "a", 1).await.unwrap().tasks.remove(0);
        let before = node.stats().round_trips;
        let notes: Vec<_> = (1..=300).map(|done| {
            let (node, key) = (node.clone(), held.key.clone());
            tokio::spawn(async move {
                node.note(vec![Note { key, progress: Some((done, 300)), output: Vec::new() }]).await
            })
        }).collect();
        for note in notes {
            note.await.unwrap().unwrap();
        }
        let asked = node.stats().round_trips - before;
        assert!(asked <= 150, "{asked} round trips for 300 notes");
        let progress = node.task(&held.key.id).await.unwrap().unwrap().progress;
        assert!(progress.is_some_and(|(_, total)| total == 300), "{progress:?}");
    }

    async fn a_beat_waits_for_no_connection_that_others_write_on(schema: &Schema) {
        let (relay, node) = by_relay(schema).await;
        submit(&*node, plan("p", 1, 1)).await;
        let writes: Vec<_> = (0..6).map(|number| {
            let held = relay.hold("post_letter");
            let node = node.clone();
            let letter = Letter { id: number.to_string(), task: task_id("p-0"), body: format!("letter {number}") };
            (held, tokio::spawn(async move { node.post(letter).await }))
        }).collect();
        for (held, _) in &writes {
            held.reached().await;
        }
        let beaten = tokio::time::timeout(PATIENCE, node.beat(Beat::default())).await;
        assert_eq!(beaten.expect("no connection is free").unwrap().losses, 0);
        writes.iter().for_each(|(held, _)| held.release());
        for (_, write) in writes {
            write.await.unwrap().unwrap();
        }
    }

    async fn a_node_is_not_called_by_itself(schema: &Schema) {
        let (_a, b) = (node(schema, "a").await, node(schema, "b").await);
        quiet(&b).await;
        submit(&*b, plan("p", 3, 1)).await;
        let called = tokio::time::timeout(Duration::from_millis(300), b.called()).await;
        assert!(called.is_err(), "what it does itself, it knows");
    }

    async fn nodes_that_start_at_once_make_the_tables_once(schema: &Schema) {
        let opened = (0..5).map(|at| {
            let (url, name) = (schema.url.clone(), format!("n{at}"));
            tokio::spawn(async move { PostgresStore::open(&url, Membership::node(name, "boot")).await })
        });
        for store in opened.collect::<Vec<_>>() {
            store.await.unwrap().unwrap();
        }
        schema.run("UPDATE @.milepost_format SET version = 99").await;
        let newer = PostgresStore::open(&schema.url, Membership::visitor()).await;
        assert!(matches!(newer, Err(StoreError::Format { .. })), "{newer:?}");
    }

    async fn cut_connections_are_made_again(schema: &Schema) {
        let store = node(schema, "n").await;
        submit(&*store, plan("p", 1, 40)).await;
        let held = claim(&*store, "n", 1).await.unwrap().tasks.remove(0);
        let mut held = held;
        for stage in 0..40 {
            if stage % 10 == 5 {
                let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                           AND query LIKE '%@.%'";
                schema.run(cut).await;
            }
            let commit = succeeds(&held, stage);
            let mut tries = 0;
            loop {
                match store.commit(commit.clone()).await {
                    // It had arrived, and only the answer was lost.
                    Ok(_) => break,
                    Err(StoreError::Conflict { found, .. }) if found == commit.task.version() => break,
                    Err(StoreError::Unavailable { .. }) if tries < 50 => tries += 1,
                    Err(error) => panic!("{error:?}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            held.task = (*commit.task).clone();
        }
        let plan = store.plan(&held.task.spec().plan).await.unwrap().unwrap();
        assert_eq!(plan.status, PlanStatus::Completed);
    }

    async fn the_log_has_columns_for_attempt_backoff_and_reason(schema: &Schema) {
        let store = node(schema, "n").await;
        submit(&*store, plan("p", 1, 1)).await;
        let held = claim(&*store, "n", 1).await.unwrap().tasks.remove(0);
        store.commit(fails(&held, 0)).await.unwrap();
        let found = "UPDATE @.events SET seq = seq WHERE attempt_number = 2 AND backoff_delay_ms = 1000 \
                     AND failure_reason = 'no answer'";
        assert_eq!(schema.run(found).await, 1);
    }

    async fn a_plan_moves_in_with_its_history_and_goes_on_as_it_was(schema: &Schema) {
        let other = milepost_store::memory::MemoryStore::new();
        submit(&other, of_tenant(at_most(plan("p", 4, 2), 3), |at| format!("t{at}"))).await;
        let claimed = claim(&other, "n", 3).await.unwrap().tasks;
        finish(&other, &claimed[0]).await.unwrap();
        let due = plans::NOW + Millis::new(1000);
        let parked = Commit { lease: LeaseChange::Release(Wake::At(due)), ..fails(&claimed[1], 0) };
        other.commit(parked).await.unwrap();
        let id = claimed[0].task.spec().plan.clone();
        let definition = other.definition(&id).await.unwrap().unwrap();
        let wakes = BTreeMap::from([("p-1", Wake::At(due))]);
        let mut tasks = Vec::new();
        for task in &definition.tasks {
            let query = milepost_store::EventQuery { task: task.id.clone(), after: 0, limit: 1000 };
            let events = other.events(query).await.unwrap().into_iter().map(|event| event.record).collect();
            let stored = other.task(&task.id).await.unwrap().unwrap();
            let wake = wakes.get(task.id.as_str()).copied().unwrap_or(Wake::Recovery);
            tasks.push(MovedTask { task: stored.task, events, wake, output: Vec::new() });
        }
        let row = other.plan(&id).await.unwrap().unwrap();
        let moved = MovedPlan { plan: definition, row: row.clone(), tasks, locks: other.locks().await.unwrap() };

        let store = node(schema, "new").await;
        store.import(moved.clone()).await.unwrap();
        assert!(matches!(store.import(moved.clone()).await, Err(StoreError::Clash(_))));
        assert_eq!(store.plan(&id).await.unwrap().unwrap(), row);
        assert_eq!(store.definition(&id).await.unwrap().unwrap(), moved.plan);
        for task in &moved.tasks {
            let stored = store.task(&task.task.spec().id).await.unwrap().unwrap();
            assert_eq!(stored.task, task.task);
        }
        let holds = |locks: Vec<milepost_store::LockRow>| -> Vec<_> {
            locks.into_iter().map(|lock| (lock.tenant, lock.task, lock.since)).collect()
        };
        assert_eq!(holds(store.locks().await.unwrap()), holds(moved.locks));
        let claimed = claim(&*store, "new", 10).await.unwrap();
        let taken: Vec<&str> = claimed.tasks.iter().map(|stored| stored.key.id.as_str()).collect();
        assert_eq!((taken, claimed.next_due), (vec!["p-2", "p-3"], Some(due)));
    }
}
