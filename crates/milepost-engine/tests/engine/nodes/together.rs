//! What several nodes may do at once, and what they see of each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::stage::Outcome;
use milepost_engine::{Registry, Verb};

use crate::support::{Cluster, Gate, Journal, RETRY, bounded, kind, of_plan};

/// Who runs at this moment, on whatever node.
#[derive(Default)]
struct Inside {
    of_tenant: HashMap<String, usize>,
    now: usize,
    peak: usize,
}

#[tokio::test(start_paused = true)]
async fn three_nodes_together_keep_to_max_concurrency_and_run_one_task_of_a_tenant_at_a_time() {
    let cluster = Cluster::new();
    let inside: Arc<Mutex<Inside>> = Arc::default();
    let counting = {
        let inside = inside.clone();
        kind(move |call| {
            let (inside, tenant) = (inside.clone(), call.tenant.map(|tenant| tenant.to_string()));
            async move {
                let tenant = tenant.unwrap_or_default();
                {
                    let mut inside = inside.lock().unwrap();
                    let of_tenant = inside.of_tenant.entry(tenant.clone()).or_default();
                    *of_tenant += 1;
                    assert_eq!(*of_tenant, 1, "two tasks of {tenant} at once");
                    inside.now += 1;
                    inside.peak = inside.peak.max(inside.now);
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut inside = inside.lock().unwrap();
                *inside.of_tenant.get_mut(&tenant).unwrap() -= 1;
                inside.now -= 1;
                Outcome::success()
            }
        })
    };
    let registry = Registry::new().with("counting", counting);
    let start = |name: &str| cluster.node_with(name, &registry, |options| options.capacity = 3);
    let members: Vec<_> = ["one", "two", "three"].map(start).into();
    let tasks: Vec<String> = (0..80).map(|i| format!("{{id: t{i}, tenant: x{}}}", i % 10)).collect();
    let text = format!(
        "{{plan: p, max_concurrency: 7, stages: [{{name: s, uses: counting}}, {{name: e, uses: counting}}], tasks: [{}]}}",
        tasks.join(",")
    );
    members[0].node.submit(&text).await;
    let row = members[1].node.ended("p").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Completed, 80));
    let peak = inside.lock().unwrap().peak;
    assert!((2..=7).contains(&peak), "{peak} at once");
    let mut by = HashMap::new();
    for i in 0..80 {
        let id = format!("t{i}");
        assert_eq!(members[0].node.count(&id, "TASK_COMPLETED").await, 1);
        *by.entry(members[0].node.task(&id).await.node().unwrap().to_string()).or_insert(0) += 1;
    }
    assert!(by.len() > 1, "one node did everything: {by:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_plan_sees_that_another_node_has_ended_it() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let waiter = cluster.visitor();
    waiter.node.submit("{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: a}]}").await;
    let _runs = cluster.node("one", &Registry::new().with("noop", journal.kind()));
    let started = tokio::time::Instant::now();
    assert_eq!(waiter.node.ended("p").await.status, PlanStatus::Completed);
    assert!(started.elapsed() <= Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_plan_paused_on_one_node_pauses_on_all_and_resumes_on_all() {
    let (cluster, gate) = (Cluster::new(), Gate::shut());
    let registry = Registry::new().with("gate", gate.kind());
    let start = |name: &str| cluster.node_with(name, &registry, |options| options.capacity = 2);
    let members: Vec<_> = ["one", "two", "three"].map(start).into();
    members[0].node.submit("{plan: p, max_concurrency: 6, stages: [{name: s, uses: gate}, {name: e, uses: gate}], tasks: [{id: a}, {id: b}, {id: c}, {id: d}, {id: e}, {id: f}]}").await;
    gate.inside(6).await;
    assert_eq!(members[1].node.does(of_plan("p"), Verb::Pause).await, 6);
    gate.let_go(6);
    for id in ["a", "b", "c", "d", "e", "f"] {
        members[2].sees(id, |task| task.status() == TaskStatus::Paused).await;
    }
    assert_eq!(gate.all().len(), 6);
    gate.open();
    members[2].node.does(of_plan("p"), Verb::Resume).await;
    assert_eq!(members[0].node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(gate.all().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_pauses_its_plan_on_every_node() {
    let (cluster, first, second) = (Cluster::new(), Gate::shut(), Gate::shut());
    let broken = kind(|_| async { Outcome::Failure(Failure::fatal(ErrorType::Business, "no")) });
    let registry = Registry::new().with("first", first.kind()).with("second", second.kind()).with("broken", broken);
    let start = |name: &str| cluster.node_with(name, &registry, |options| options.capacity = 1);
    let (one, two) = (start("one"), start("two"));
    one.node.submit("{plan: p, on_task_failure: pause, max_concurrency: 2, stages: [{name: s, uses: first}, {name: e, uses: second}, {name: f, uses: second}], tasks: [{id: a}, {id: b, stages: [{name: s, uses: first}, {name: e, uses: broken}]}]}").await;
    first.inside(2).await;
    first.open();
    second.inside(1).await;
    two.sees("b", |task| task.status() == TaskStatus::Failed).await;
    two.node.until_plan("p", PlanStatus::Paused).await;
    // The other one is asked to pause at its stage boundary, wherever it runs.
    two.sees("a", |task| task.pause_requested().is_some()).await;
    second.open();
    two.sees("a", |task| task.status() == TaskStatus::Paused).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_plan_ends_on_every_node() {
    let (cluster, gate) = (Cluster::new(), Gate::shut());
    let registry = Registry::new().with("gate", gate.kind());
    let start = |name: &str| cluster.node_with(name, &registry, |options| options.capacity = 1);
    let (one, _two) = (start("one"), start("two"));
    one.node
        .submit("{plan: p, max_concurrency: 2, stages: [{name: s, uses: gate}], tasks: [{id: a}, {id: b}, {id: c}]}")
        .await;
    gate.inside(2).await;
    assert_eq!(one.node.does(of_plan("p"), Verb::Cancel).await, 3);
    let row = one.node.ended("p").await;
    assert_eq!((row.status, row.counts.cancelled), (PlanStatus::Cancelled, 3));
    assert_eq!(gate.cancelled().len(), 2);
}

/// More tasks than are dealt with at once.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_plan_that_somebody_cancels_in_the_middle_says_what_it_did_and_what_it_left() {
    let cluster = Cluster::new();
    let broken = kind(|_| async { Outcome::Failure(Failure::fatal(ErrorType::Business, "no")) });
    let runs = cluster.node("one", &Registry::new().with("broken", broken));
    let tasks: Vec<String> = (0..501).map(|number| format!("{{id: t-{number}}}")).collect();
    let plan = format!("{{plan: p, stages: [{{name: a, uses: broken}}], tasks: [{}]}}", tasks.join(", "));
    runs.node.submit(&plan).await;
    assert_eq!(runs.node.ended("p").await.status, PlanStatus::Failed);
    runs.cut();
    let (retries, cancels) = (cluster.visitor(), cluster.visitor());
    retries.line.commits_take(Duration::from_secs(2));
    let cancelled = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        cancels.node.does(of_plan("p"), Verb::Cancel).await;
    };
    let (retried, ()) = tokio::join!(retries.node.operate(of_plan("p"), RETRY), cancelled);
    let retried = retried.expect("most of it was done");
    assert_eq!((retried.tasks, retried.left.len()), (500, 1));
    assert!(retried.left[0].reason.contains("cannot retry plan p: it is CANCELLED"), "{}", retried.left[0].reason);
}

/// The plan is set going in a commit of its own, before its tasks are.
#[tokio::test(start_paused = true)]
async fn a_retry_that_set_a_held_plan_going_is_not_refused_when_somebody_cancels_it_before_its_tasks_are() {
    let (cluster, gate) = (Cluster::new(), Gate::shut());
    let runs = cluster.node("one", &Registry::new().with("gate", gate.kind()));
    runs.node.submit("{plan: p, recovery: manual, stages: [{name: a, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    runs.cut();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (retries, cancels) = (cluster.node("two", &Registry::new()), cluster.visitor());
    let held = async {
        while !retries.node.plan("p").await.waits_for_person {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded("a plan that waits for a person", held).await;
    retries.line.commits_take(Duration::from_secs(2));
    cancels.line.commits_take(Duration::from_secs(5));
    let cancelled = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancels.node.does(of_plan("p"), Verb::Cancel).await;
    };
    let (retried, ()) = tokio::join!(retries.node.operate(of_plan("p"), RETRY), cancelled);
    let retried = retried.expect("it is recorded of the plan");
    assert_eq!((retried.tasks, retried.left.len()), (0, 1));
    assert!(retried.left[0].reason.contains("cannot retry plan p: it is CANCELLED"), "{}", retried.left[0].reason);
}
