//! Attempts that a pause or a stop does not wait for.

use std::time::Duration;

use milepost_core::task::{PlanStatus, StageStatus, TaskStatus};
use milepost_engine::stage::{Outcome, StageCall};
use milepost_engine::{Registry, Verb, explain};

use crate::support::{Copier, Gate, Journal, World, bounded, kind, of_plan, of_task, of_tenant, stage, task_id};

fn registry(copier: &Copier) -> Registry {
    Registry::new().with("copy", copier.kind()).with("stubborn", copier.stubborn().kind())
}

const ONE: &str = "{plan: p, stages: [{name: first, uses: noop}, {name: copy, uses: copy}, {name: last, uses: noop}], tasks: [{id: t, tenant: x}]}";

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_task_a_tenant_or_a_plan_ends_an_interruptible_attempt_at_once() {
    for target in [of_task("t"), of_tenant("x"), of_plan("p")] {
        let (world, copier, journal) = (World::new(), Copier::new(), Journal::default());
        copier.holds("t", 40);
        let node = world.node(registry(&copier).with("noop", journal.kind()));
        node.submit(ONE).await;
        copier.until_runs("t", &[40]).await;
        node.does(target, Verb::Pause).await;
        let task = node.task("t").await;
        assert_eq!((task.status(), task.interrupted()), (TaskStatus::Paused, false));
        assert_eq!(node.seen("t").await.1, 46.6, "one stage of three, and 40 % of the next");
        let log = node.log("t").await;
        assert_eq!(log[log.len() - 3..], ["TASK_INTERRUPTED", "PAUSE_REQUESTED", "TASK_PAUSED"]);
        let why = explain(&**node.engine.store(), &task_id("t"), world.clock.now(), Default::default())
            .await
            .unwrap()
            .unwrap();
        assert!(why.message.starts_with("it was paused by tester"), "{}", why.message);
        assert_eq!(node.engine.store().locks().await.unwrap().len(), 1, "it keeps its tenant");
        node.idle().await;

        copier.lets_go();
        node.does(of_plan("p"), Verb::Resume).await;
        assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
        assert_eq!((copier.runs("t"), journal.calls()), (vec![40, 100], vec!["t/first/1".into(), "t/last/1".into()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_pauses_because_a_task_failed_cuts_the_others_off() {
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("a", 20);
    copier.holds("b", 0);
    copier.breaks("b");
    let node = world.node(registry(&copier));
    node.submit("{plan: p, on_task_failure: pause, stages: [{name: copy, uses: copy}], tasks: [{id: a}, {id: b}]}")
        .await;
    copier.until_runs("a", &[20]).await;
    copier.holds("b", 100);
    node.until_status("a", TaskStatus::Paused).await;
    assert_eq!((node.seen("a").await.1, node.status("b").await), (20.0, TaskStatus::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_stop_cuts_interruptible_attempts_off_and_the_next_node_begins_them_anew() {
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("t", 70);
    let node = world.node(registry(&copier).with("noop", Journal::default().kind()));
    node.submit(ONE).await;
    copier.until_runs("t", &[70]).await;
    let asked_at = tokio::time::Instant::now();
    node.stop().await;
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    let stored = node.stored("t").await;
    assert_eq!((stored.task.status(), stored.task.interrupted()), (TaskStatus::Running, true));
    assert_eq!(stored.progress, Some((7_000, 10_000)));
    drop(node);

    copier.lets_go();
    let node = world.node(registry(&copier).with("noop", Journal::default().kind()));
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(copier.runs("t"), [70, 100]);
    assert_eq!(node.count("t", "STAGE_STARTED copy 1").await, 2, "it used no attempt up");
}

const BESIDE: &str = "{plan: p, stages: [{name: copy, uses: copy, needs: []}, {name: wait, uses: gate, needs: []}, {name: last, uses: noop}], tasks: [{id: t}]}";

#[tokio::test(start_paused = true)]
async fn a_task_with_a_stage_that_must_be_waited_for_pauses_at_that_ones_end() {
    let (world, copier, gate) = (World::new(), Copier::new(), Gate::shut());
    copier.holds("t", 50);
    let node = world.node(registry(&copier).with("gate", gate.kind()).with("noop", Journal::default().kind()));
    node.submit(BESIDE).await;
    gate.inside(1).await;
    copier.until_runs("t", &[50]).await;
    node.does(of_task("t"), Verb::Pause).await;
    assert_eq!(node.status("t").await, TaskStatus::Running);
    copier.holds("t", 60);
    copier.until_runs("t", &[60]).await;
    gate.open();
    let task = node.until_status("t", TaskStatus::Paused).await;
    assert_eq!((stage(&task, "wait"), task.done().len()), (StageStatus::Completed, 1));
    copier.lets_go();
    node.does(of_task("t"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!((copier.runs("t"), gate.all().len()), (vec![60, 100], 1));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_taken_back_while_it_waits_for_another_stage_costs_nothing() {
    let (world, copier, gate) = (World::new(), Copier::new(), Gate::shut());
    copier.holds("t", 50);
    let node = world.node(registry(&copier).with("gate", gate.kind()).with("noop", Journal::default().kind()));
    node.submit(BESIDE).await;
    gate.inside(1).await;
    node.does(of_task("t"), Verb::Pause).await;
    node.does(of_task("t"), Verb::Resume).await;
    gate.open();
    copier.lets_go();
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(copier.runs("t"), [100]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_stage_that_must_be_waited_for_and_then_for_nothing_else() {
    let (world, copier, gate) = (World::new(), Copier::new(), Gate::shut());
    copier.holds("t", 50);
    let node = world.node(registry(&copier).with("gate", gate.kind()).with("noop", Journal::default().kind()));
    node.submit(BESIDE).await;
    gate.inside(1).await;
    let engine = node.engine.clone();
    let stopping = tokio::spawn(async move { engine.stop().await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stopping.is_finished());
    gate.open();
    bounded("the stop", stopping).await.unwrap();
    let task = node.task("t").await;
    assert!(task.interrupted() && stage(&task, "wait") == StageStatus::Completed, "{:?}", node.log("t").await);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_well_although_it_was_cut_off_is_not_repeated() {
    struct Finishes(Journal);
    #[async_trait::async_trait]
    impl milepost_engine::stage::StageKind for Finishes {
        fn interruptible(&self, _: &serde_json::Value) -> bool {
            true
        }

        async fn run(&self, call: StageCall) -> Outcome {
            self.0.note(&call);
            call.cancel.cancelled().await;
            Outcome::success()
        }
    }
    let (world, journal) = (World::new(), Journal::default());
    let finishes = std::sync::Arc::new(Finishes(journal.clone()));
    let node = world.node(Registry::new().with("finishes", finishes).with("noop", journal.kind()));
    node.submit("{plan: p, stages: [{name: a, uses: finishes}, {name: b, uses: noop}], tasks: [{id: t}]}").await;
    node.until("t", |task| stage(task, "a") == StageStatus::Running).await;
    node.does(of_task("t"), Verb::Pause).await;
    let task = node.until_status("t", TaskStatus::Paused).await;
    assert_eq!((stage(&task, "a"), stage(&task, "b")), (StageStatus::Completed, StageStatus::Pending));
    node.does(of_task("t"), Verb::Resume).await;
    node.ended("p").await;
    assert_eq!(journal.calls(), ["t/a/1", "t/b/1"]);
}

#[tokio::test(start_paused = true)]
async fn what_undoes_a_stage_is_never_cut_off() {
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("t", 50);
    let fails = kind(|_| async {
        let no = milepost_core::failure::Failure::fatal(milepost_core::failure::ErrorType::Business, "no");
        Outcome::Failure(no)
    });
    let registry = registry(&copier).with("noop", Journal::default().kind()).with("fails", fails);
    let node = world.node(registry);
    node.submit("{plan: p, on_failure: rollback, stages: [{name: a, uses: noop, rollback: {uses: copy}}, {name: b, uses: fails}], tasks: [{id: t}]}").await;
    copier.until_runs("t", &[50]).await;
    let refusal = node.refuses(of_task("t"), Verb::Pause).await;
    assert!(refusal.contains("it is ROLLING_BACK"), "{refusal}");
    let engine = node.engine.clone();
    let stopping = tokio::spawn(async move { engine.stop().await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stopping.is_finished());
    copier.lets_go();
    bounded("the stop", stopping).await.unwrap();
    assert_eq!((copier.runs("t"), node.status("t").await), (vec![100], TaskStatus::RolledBack));
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_is_not_interruptible_is_waited_for_as_ever() {
    let (world, copier) = (World::new(), Copier::new());
    copier.holds("t", 50);
    let node = world.node(registry(&copier));
    node.submit("{plan: p, stages: [{name: copy, uses: stubborn}, {name: more, uses: stubborn}], tasks: [{id: t}]}")
        .await;
    copier.until_runs("t", &[50]).await;
    node.does(of_task("t"), Verb::Pause).await;
    assert_eq!(node.status("t").await, TaskStatus::Running);
    copier.lets_go();
    node.until_status("t", TaskStatus::Paused).await;
    assert_eq!((copier.runs("t"), node.seen("t").await.1), (vec![100], 50.0));
}

#[tokio::test(start_paused = true)]
async fn a_pause_asked_for_on_another_node_cuts_the_attempt_off_where_it_runs() {
    let (cluster, copier) = (crate::support::Cluster::new(), Copier::new());
    copier.holds("t", 50);
    let holder = cluster.node("holder", &registry(&copier));
    holder.node.submit("{plan: p, stages: [{name: copy, uses: copy}], tasks: [{id: t}]}").await;
    copier.until_runs("t", &[50]).await;
    let visitor = cluster.visitor();
    visitor.node.does(of_plan("p"), Verb::Pause).await;
    assert_eq!(visitor.node.seen("t").await, (TaskStatus::Paused, 50.0));
    copier.lets_go();
    visitor.node.does(of_plan("p"), Verb::Resume).await;
    holder.sees("t", |task| task.status() == TaskStatus::Completed).await;
    assert_eq!(copier.runs("t"), [50, 100]);
}
