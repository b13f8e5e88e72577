//! Why a task is not running: every reason by its name, with what a person needs to know and to do.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::api::{Explanation, Reason};
use milepost_core::plan::{PlanCommand, Recovery};
use milepost_core::task::{By, PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::{Registry, Verb, explain};
use milepost_store::memory::MemoryStore;
use milepost_store::{ClaimRequest, PlanChange, Resubmit, Start, Store};

use crate::support::{DAWN, Faulty, Flaky, Gate, Journal, Node, World, of_plan, of_task, plan, task_id};

async fn why(node: &Node, task: &str) -> Explanation {
    let (store, now) = (node.engine.store(), node.engine.clock().now());
    explain(&**store, &task_id(task), now, Default::default()).await.expect("a store").expect("a task")
}

fn says(explanation: &Explanation, reason: Reason, words: &str, next: Option<&str>) {
    assert_eq!(explanation.reason, reason, "{explanation:?}");
    assert!(explanation.message.contains(words), "{}", explanation.message);
    assert_eq!(explanation.next.as_deref(), next, "{explanation:?}");
}

/// A node on a store in memory, with a gate, a flaky kind and one that does nothing.
fn node(world: &World) -> (Node, Gate, Flaky, Arc<MemoryStore>) {
    let (gate, flaky, store) = (Gate::shut(), Flaky::default(), Arc::new(MemoryStore::new()));
    let registry = Registry::new().with("gate", gate.kind()).with("flaky", flaky.kind());
    let registry = registry.with("noop", Journal::default().kind());
    (world.node_on(store.clone(), registry), gate, flaky, store)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_says_where_and_one_that_has_ended_says_how() {
    let world = World::new();
    let (node, gate, ..) = node(&world);
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    let running = why(&node, "t").await;
    says(&running, Reason::Running, "runs stage s", None);
    assert_eq!((&running.data["node"], &running.data["attempt"]), (&"node-1".into(), &1.into()));
    gate.open();
    node.ended("p").await;
    says(&why(&node, "t").await, Reason::Ended, "COMPLETED", None);
    let nobody = explain(&**node.engine.store(), &task_id("nobody"), DAWN, Default::default()).await.unwrap();
    assert_eq!(nobody, None);
}

#[tokio::test(start_paused = true)]
async fn a_pending_task_names_what_it_waits_for() {
    let world = World::new();
    let (node, gate, ..) = node(&world);
    node.submit("{plan: p, max_concurrency: 1, stages: [{name: s, uses: gate}], tasks: [{id: a, tenant: x}, {id: b}]}")
        .await;
    node.submit("{plan: q, stages: [{name: s, uses: gate}], tasks: [{id: c, tenant: x}]}").await;
    gate.inside(1).await;
    let locked = why(&node, "c").await;
    says(&locked, Reason::TenantLocked, "its tenant x is held by p:a since", Some("milepost status a"));
    assert_eq!(locked.data["heldBy"], "p:a");
    assert_eq!(locked.data["since"].as_str().unwrap().parse::<Timestamp>().unwrap(), DAWN);
    let slotless = why(&node, "b").await;
    says(&slotless, Reason::NoSlot, "runs 1 of at most 1 tasks", None);
    assert_eq!((&slotless.data["running"], &slotless.data["maxConcurrency"]), (&1.into(), &1.into()));

    let later = plan("{plan: r, stages: [{name: s, uses: gate}], tasks: [{id: d}]}");
    node.engine.submit(later, Start::Later, Resubmit::Same).await.unwrap();
    says(&why(&node, "d").await, Reason::PlanNotStarted, "plan r has not been started", Some("milepost start r"));
    node.does(of_plan("r"), Verb::Pause).await;
    let paused = why(&node, "d").await;
    says(&paused, Reason::PlanPaused, "plan r was paused by tester", Some("milepost resume r"));
    assert_eq!(paused.data["by"], "tester");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_only_waits_for_room_on_its_node_says_so() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Arc::new(MemoryStore::new());
    let node = world.idle_node(store, Registry::new().with("gate", gate.kind()), |options| options.capacity = 1);
    node.engine.start();
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: a}, {id: b}]}").await;
    gate.inside(1).await;
    says(&why(&node, "b").await, Reason::NodeFull, "its turn is next", None);
}

#[tokio::test(start_paused = true)]
async fn a_retry_says_when_it_is_due_which_attempt_it_is_and_what_went_wrong() {
    let world = World::new();
    let (node, _, flaky, _) = node(&world);
    flaky.fail("s", 1);
    let retry = "{max_attempts: 4, strategy: fixed, base: 1h, max: 1h, jitter: false}";
    node.submit(&format!("{{plan: p, stages: [{{name: s, uses: flaky, retry: {retry}}}], tasks: [{{id: t}}]}}")).await;
    node.until("t", |task| task.next_due().is_some()).await;
    let waits = why(&node, "t").await;
    says(&waits, Reason::RetryWait, "tried again in ", None);
    assert!(waits.message.contains("attempt 2 of 4: no route"), "{}", waits.message);
    assert_eq!((&waits.data["attempt"], &waits.data["maxAttempts"]), (&2.into(), &4.into()));
    assert_eq!((&waits.data["lastError"], &waits.data["stage"]), (&"no route".into(), &"s".into()));
    let due: Timestamp = waits.data["dueAt"].as_str().unwrap().parse().unwrap();
    assert_eq!(Some(due), node.task("t").await.next_due());
}

#[tokio::test(start_paused = true)]
async fn a_paused_task_says_who_paused_it_and_why_and_one_that_is_about_to_pause_too() {
    let world = World::new();
    let (node, gate, ..) = node(&world);
    node.submit("{plan: p, stages: [{name: a, uses: gate}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    let by = milepost_core::task::By { who: "ann".to_owned(), why: Some("maintenance".to_owned()) };
    node.engine.operate(of_task("t"), Verb::Pause, by).await.unwrap();
    let pausing = why(&node, "t").await;
    says(&pausing, Reason::Pausing, "as asked by ann: maintenance", Some("milepost resume t takes the pause back"));
    gate.let_go(1);
    node.until_status("t", TaskStatus::Paused).await;
    let paused = why(&node, "t").await;
    says(&paused, Reason::Paused, "paused by ann: maintenance", Some("milepost resume t"));
    assert_eq!((&paused.data["by"], &paused.data["why"]), (&"ann".into(), &"maintenance".into()));
    node.does(of_plan("p"), Verb::Pause).await;
    says(&why(&node, "t").await, Reason::Paused, "paused by ann", Some("milepost resume p"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_says_where_after_how_many_attempts_why_and_what_may_be_done() {
    let world = World::new();
    let (node, _, flaky, _) = node(&world);
    flaky.fail("s", 9);
    node.run(
        "{plan: p, stages: [{name: s, uses: flaky, retry: {max_attempts: 2}, rollback: {uses: noop}}], tasks: [{id: t}]}",
    )
    .await;
    let failed = why(&node, "t").await;
    let next = Some("milepost retry t, or milepost rollback t to undo it");
    says(&failed, Reason::Failed, "failed at stage s after 2 attempts: NETWORK: no route", next);
    assert_eq!((&failed.data["attempts"], &failed.data["errorType"]), (&2.into(), &"NETWORK".into()));
    node.does(of_task("t"), Verb::Rollback).await;
    node.until_status("t", TaskStatus::RolledBack).await;
    says(&why(&node, "t").await, Reason::Ended, "ROLLED_BACK", None);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_failed_says_so() {
    let world = World::new();
    let (node, _, flaky, _) = node(&world);
    flaky.fail("s", 1);
    flaky.fail("s/undo", 1);
    let stage = "{name: s, uses: flaky, rollback: {uses: flaky}}";
    node.run(&format!("{{plan: p, defaults: {{retry: {{max_attempts: 1}}}}, stages: [{stage}], tasks: [{{id: t}}]}}"))
        .await;
    node.does(of_task("t"), Verb::Rollback).await;
    node.until_status("t", TaskStatus::RollbackFailed).await;
    says(&why(&node, "t").await, Reason::Failed, "its rollback failed: ", Some("milepost rollback t"));
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_node_is_gone_names_the_node_and_who_goes_on_with_it() {
    let world = World::new();
    let (before, gate, _, store) = node(&world);
    for recovery in ["auto", "manual"] {
        let text = "{plan: X, recovery: X, stages: [{name: s, uses: gate}], tasks: [{id: X-t}]}";
        before.submit(&text.replace('X', recovery)).await;
    }
    gate.inside(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    let gone = why(&after, "auto-t").await;
    says(&gone, Reason::NodeGone, "interrupted on node-1 since", None);
    assert!(gone.message.contains("(1m ago)"), "{}", gone.message);
    let left = why(&after, "manual-t").await;
    says(&left, Reason::Interrupted, "a person decides", Some("milepost resume manual-t"));
    assert_eq!((&left.data["node"], &left.data["recovery"]), (&"node-1".into(), &"manual".into()));
    after.does(of_plan("manual"), Verb::Pause).await;
    assert_eq!(after.plan("manual").await.status, PlanStatus::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_its_stopping_node_gave_back_says_why_it_was_interrupted() {
    let world = World::new();
    let (node, gate, ..) = node(&world);
    node.submit(
        "{plan: p, recovery: manual, stages: [{name: a, uses: gate}, {name: b, uses: gate}], tasks: [{id: t}]}",
    )
    .await;
    gate.inside(1).await;
    let stop = node.stop();
    gate.let_go(1);
    stop.await;
    let left = why(&node, "t").await;
    says(&left, Reason::Interrupted, "the node was stopped", Some("milepost resume t"));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_read_says_what_is_wrong_with_it() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(Arc::new(MemoryStore::new()));
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    store.damage(task_id("t"));
    let damaged = why(&node, "t").await;
    says(&damaged, Reason::Damaged, "the test says so", Some("milepost store repair --task t"));
    assert_eq!(damaged.status, TaskStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_tenant_comes_free_while_it_is_looked_at_is_not_called_damaged() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(Arc::new(MemoryStore::new()));
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: a, tenant: x}, {id: b, tenant: x}]}").await;
    gate.inside(1).await;
    assert_eq!(node.stored("b").await.blocked_by.as_deref(), Some("p:a"));
    store.frees_tenants();
    says(&why(&node, "b").await, Reason::NodeFull, "its turn is next", None);
}

#[tokio::test(start_paused = true)]
async fn a_task_behind_one_that_cannot_be_read_names_it_and_its_repair() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Faulty::over(Arc::new(MemoryStore::new()));
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    let stages = "[{name: s, uses: gate}, {name: e, uses: gate}]";
    node.submit(&format!("{{plan: p, stages: {stages}, tasks: [{{id: a, tenant: x}}, {{id: b, tenant: x}}]}}")).await;
    gate.inside(1).await;
    node.does(of_task("a"), Verb::Pause).await;
    gate.let_go(1);
    node.until_status("a", TaskStatus::Paused).await;
    store.damage(task_id("a"));
    let behind = why(&node, "b").await;
    says(&behind, Reason::TenantLocked, "which is damaged", Some("milepost store repair --task a"));
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_plan_is_full_says_so_also_when_that_takes_more_than_a_thousand() {
    let (world, gate) = (World::new(), Gate::shut());
    let registry = Registry::new().with("gate", gate.kind());
    let node = world.idle_node(Arc::new(MemoryStore::new()), registry, |options| options.capacity = 2000);
    node.engine.start();
    let tasks: String = (0..=1001).map(|task| format!("{{id: t-{task}}}, ")).collect();
    let text = format!("{{plan: p, max_concurrency: 1001, stages: [{{name: s, uses: gate}}], tasks: [{tasks}]}}");
    node.submit(&text).await;
    gate.inside(1001).await;
    says(&why(&node, "t-1001").await, Reason::NoSlot, "its plan runs 1001 of at most 1001 tasks at once", None);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_plan_is_full_of_interrupted_ones_names_them_and_what_to_type() {
    let world = World::new();
    let (before, gate, _, store) = node(&world);
    let tasks = "[{id: a}, {id: b}, {id: c}]";
    let text =
        "{plan: X, recovery: X, max_concurrency: 2, stages: [{name: s, uses: gate}], tasks: ".to_owned() + tasks + "}";
    for recovery in ["auto", "manual"] {
        let renamed = text.replace('X', recovery).replace("{id: ", &format!("{{id: {recovery}-"));
        before.submit(&renamed).await;
    }
    gate.inside(4).await;
    let after = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    let next = "milepost resume manual-c, or milepost resume manual for all of its plan";
    says(&why(&after, "manual-c").await, Reason::Interrupted, "all nodes were gone", Some(next));
    after.does(of_plan("manual"), Verb::Start).await;
    let manual = why(&after, "manual-c").await;
    says(
        &manual,
        Reason::NoSlot,
        "2 were interrupted and nobody runs them: manual-a, manual-b",
        Some("milepost resume manual"),
    );
    assert_eq!((&manual.data["running"], &manual.data["interrupted"]), (&0.into(), &2.into()));
    says(&why(&after, "auto-c").await, Reason::NoSlot, "a node takes them up by itself", None);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_gave_its_lease_back_to_wait_says_that_its_plan_is_paused() {
    let world = World::new();
    let (node, _, flaky, store) = node(&world);
    flaky.fail("s", 1);
    node.submit(
        "{plan: p, stages: [{name: s, uses: flaky, retry: {base: 1m, max_attempts: 2, jitter: false}}], tasks: [{id: t}]}",
    )
    .await;
    node.until("t", |task| task.next_due().is_some()).await;
    node.idle().await;
    says(&why(&node, "t").await, Reason::RetryWait, "tried again", None);
    // The plan alone, as when whoever pauses it dies before it has come to its tasks.
    let by = milepost_core::task::By::new("tester");
    let (plan, now) = (crate::support::plan_id("p"), node.engine.clock().now());
    let change = PlanChange { plan, command: PlanCommand::Pause, by, expected: None, now };
    store.change_plan(change).await.expect("a plan that runs");
    tokio::time::sleep(Duration::from_secs(120)).await;
    says(&why(&node, "t").await, Reason::PlanPaused, "its plan p was paused by tester", Some("milepost resume p"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_person_since_all_nodes_were_gone_says_so_and_goes_on_at_a_word() {
    let world = World::new();
    let (before, gate, _, store) = node(&world);
    before.submit(
        "{plan: p, recovery: manual, max_concurrency: 1, stages: [{name: s, uses: gate}], tasks: [{id: a}, {id: b}, {id: c}]}",
    )
    .await;
    gate.inside(1).await;
    let gate = Gate::shut();
    let after = world.node_on(Arc::new(store.reopen()), Registry::new().with("gate", gate.kind()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waits = why(&after, "b").await;
    let next = "milepost resume b, or milepost resume p for all of its plan";
    says(&waits, Reason::Interrupted, "its plan says `recovery: manual`, so a person decides", Some(next));
    after.does(of_task("a"), Verb::Cancel).await;
    after.does(of_task("c"), Verb::Retry { from_checkpoint: true }).await;
    gate.inside(1).await;
    assert_eq!(after.task("c").await.status(), TaskStatus::Running);
    says(&why(&after, "b").await, Reason::Interrupted, "a person decides", Some(next));
    gate.let_go(1);
    after.ended_task("c").await;
    after.does(of_plan("p"), Verb::Retry { from_checkpoint: true }).await;
    gate.inside(1).await;
    gate.let_go(1);
    after.ended_task("b").await;
}

/// A node comes and goes that has no room for anything.
async fn passes_by(store: &MemoryStore) {
    let request = ClaimRequest {
        node: "node-1".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit: 0,
        now: None,
    };
    store.reopen().claim(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_held_task_that_has_run_goes_on_from_its_checkpoint_or_is_refused() {
    let world = World::new();
    let (before, gate, _, store) = node(&world);
    before
        .submit("{plan: p, recovery: manual, stages: [{name: r, uses: gate}, {name: s, uses: gate}], tasks: [{id: t}]}")
        .await;
    gate.inside(1).await;
    before.does(of_task("t"), Verb::Pause).await;
    gate.let_go(1);
    before.until_status("t", TaskStatus::Paused).await;
    let idle = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    idle.does(of_task("t"), Verb::Resume).await;
    passes_by(&store).await;
    passes_by(&store).await;
    let node = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    let waits = node.stored("t").await;
    assert!(waits.waits_for_person && waits.task.status() == TaskStatus::Pending);
    let from_start = Verb::Retry { from_checkpoint: false };
    let refused = node.engine.operate_expecting(of_task("t"), from_start, By::new("ann"), None).await;
    let words = refused.expect_err("it is not obeyed").to_string();
    assert!(words.contains("goes on from its checkpoint; `milepost resume t`"), "{words}");
    assert!(node.stored("t").await.waits_for_person);
    node.does(of_task("t"), Verb::Retry { from_checkpoint: true }).await;
    assert!(!node.stored("t").await.waits_for_person);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_is_held_after_the_end_of_its_plan_names_no_verb_of_the_plan() {
    let world = World::new();
    let (before, _, flaky, store) = node(&world);
    flaky.fail("t", 2);
    before
        .submit(
            "{plan: p, recovery: manual, stages: [{name: s, uses: noop, rollback: {uses: noop}}, \
             {name: t, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: a}]}",
        )
        .await;
    assert_eq!(before.ended("p").await.status, PlanStatus::Failed);
    let idle = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    idle.does(of_task("a"), Verb::Rollback).await;
    passes_by(&store).await;
    passes_by(&store).await;
    let node = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    says(&why(&node, "a").await, Reason::Interrupted, "all nodes were gone", Some("milepost rollback a"));
}

#[tokio::test(start_paused = true)]
async fn a_rollback_after_the_end_of_a_plan_that_goes_on_by_itself_waits_for_no_person() {
    let world = World::new();
    let (before, _, flaky, store) = node(&world);
    flaky.fail("t", 2);
    before
        .submit(
            "{plan: p, stages: [{name: s, uses: noop, rollback: {uses: noop}}, \
             {name: t, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: a}]}",
        )
        .await;
    assert_eq!(before.ended("p").await.status, PlanStatus::Failed);
    let idle = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    idle.does(of_task("a"), Verb::Rollback).await;
    passes_by(&store).await;
    passes_by(&store).await;
    let node = world.idle_node(Arc::new(store.reopen()), Registry::new(), |_| {});
    says(&why(&node, "a").await, Reason::NodeFull, "its turn is next", None);
    let now = node.engine.clock().now();
    let manual = explain(&**node.engine.store(), &task_id("a"), now, Recovery::Manual).await.unwrap().unwrap();
    says(&manual, Reason::Interrupted, "all nodes were gone", Some("milepost rollback a"));
    // Whoever types it need not know the nodes' setting.
    node.does(of_task("a"), Verb::Rollback).await;
    let set_going = explain(&**node.engine.store(), &task_id("a"), now, Recovery::Manual).await.unwrap().unwrap();
    says(&set_going, Reason::NodeFull, "its turn is next", None);
}
