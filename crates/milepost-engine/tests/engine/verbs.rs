//! The operator's verbs on tasks and tenants.

use std::sync::Arc;

use milepost_core::task::{By, PlanStatus, StageStatus, TaskStatus};
use milepost_engine::{Registry, Verb, VerbError};
use milepost_store::{Resubmit, Start};

use crate::support::{Flaky, Gate, Journal, RETRY, World, of_plan, of_task, of_tenant, plan, stage, task_id};

const PARALLEL: &str = "
plan: p
stages:
  - { name: a, uses: gate, needs: [] }
  - { name: b, uses: gate, needs: [] }
  - { name: after-a, uses: noop, needs: [a] }
  - { name: last, uses: noop, needs: [after-a, b] }
tasks: [{ id: t, tenant: x }]";

#[tokio::test(start_paused = true)]
async fn a_pause_takes_effect_when_all_running_stages_have_ended_and_nothing_new_starts_before() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit(PARALLEL).await;
    gate.inside(2).await;
    node.does(of_task("t"), Verb::Pause).await;
    assert_eq!(node.status("t").await, TaskStatus::Running);
    assert!(node.task("t").await.pause_requested().is_some());
    gate.let_go(1);
    node.until("t", |task| task.done().len() == 1).await;
    assert_eq!(node.status("t").await, TaskStatus::Running, "one stage still runs");
    gate.let_go(1);
    let task = node.until_status("t", TaskStatus::Paused).await;
    assert_eq!((task.done().len(), journal.calls().len()), (2, 0));
    node.idle().await;
    assert_eq!(node.engine.store().locks().await.unwrap().len(), 1, "it keeps its tenant");
    node.does(of_tenant("x"), Verb::Resume).await;
    node.ended("p").await;
    assert_eq!(journal.calls(), ["t/after-a/1", "t/last/1"]);
    assert_eq!(gate.all().len(), 2, "what was completed did not run again");
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_stages_that_end_at_once_can_be_paused_and_stopped_in_the_middle() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let stages: Vec<String> = (0..900).map(|i| format!("{{name: s{i}, uses: noop}}")).collect();
    node.submit(&format!("{{plan: p, stages: [{}], tasks: [{{id: t}}]}}", stages.join(","))).await;
    node.until("t", |task| !task.done().is_empty()).await;
    node.does(of_task("t"), Verb::Pause).await;
    let paused_at = node.until_status("t", TaskStatus::Paused).await.done().len();
    node.does(of_task("t"), Verb::Resume).await;
    node.until("t", |task| task.done().len() > paused_at).await;
    node.stop().await;
    let task = node.task("t").await;
    assert!(task.interrupted() && task.done().len() < 900, "{} {}", task.status(), task.done().len());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_taken_back_in_time_changes_nothing() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit(PARALLEL).await;
    gate.inside(2).await;
    node.does(of_task("t"), Verb::Pause).await;
    gate.let_go(1);
    node.until("t", |task| task.done().len() == 1).await;
    node.does(of_task("t"), Verb::Resume).await;
    gate.open();
    node.ended("p").await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(node.count("t", "TASK_PAUSED").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_from_the_checkpoint_runs_no_completed_stage_and_one_from_the_start_runs_all() {
    let (world, flaky) = (World::new(), Flaky::default());
    flaky.fail("b", 2);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    node.run("{plan: p, defaults: {retry: {max_attempts: 1}}, stages: [{name: a, uses: flaky}, {name: b, uses: flaky}, {name: c, uses: flaky}], tasks: [{id: t}]}").await;
    node.does(of_task("t"), RETRY).await;
    node.until_status("t", TaskStatus::Failed).await;
    node.ended("p").await;
    node.does(of_task("t"), Verb::Retry { from_checkpoint: false }).await;
    node.ended("p").await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(flaky.journal.calls(), ["t/a/1", "t/b/1", "t/b/1", "t/a/1", "t/b/1", "t/c/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_makes_no_sense_is_refused_in_words_and_changes_nothing() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: t, tenant: x}]}").await;
    gate.inside(1).await;
    let version = node.task("t").await.version();
    for (verb, words) in [
        (RETRY, "cannot retry task t: it is RUNNING"),
        (Verb::Resume, "cannot resume task t: it is RUNNING"),
        (Verb::Rollback, "`milepost pause t` first"),
        (Verb::Start, "a task is started with its plan"),
    ] {
        let refusal = node.refuses(of_task("t"), verb).await;
        assert!(refusal.contains(words), "{refusal}");
    }
    assert_eq!(node.task("t").await.version(), version);
    assert_eq!(gate.now_inside(), ["t/s/1"], "and ends nothing");
    gate.open();
    node.ended("p").await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Cancel, RETRY, Verb::Rollback] {
        let refusal = node.refuses(of_tenant("x"), verb).await;
        assert!(refusal.contains("it is COMPLETED"), "{refusal}");
    }
    for target in [of_task("nobody"), of_plan("nobody"), of_tenant("nobody")] {
        let refused = node.operate(target, Verb::Cancel).await.unwrap_err();
        assert!(matches!(refused, VerbError::NotFound { .. }), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_verb_is_for_the_task_at_work() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, stages: [{name: s, uses: gate}], tasks: [{id: old, tenant: x}, {id: new, tenant: x}]}")
        .await;
    gate.inside(1).await;
    node.does(of_tenant("x"), Verb::Cancel).await;
    assert_eq!(node.status("old").await, TaskStatus::Cancelled);
    gate.open();
    node.ended("p").await;
    assert_eq!(gate.all(), ["old/s/1", "new/s/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_final_and_its_stages_say_so() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("noop", journal.kind()));
    node.submit(PARALLEL).await;
    gate.inside(2).await;
    node.does(of_task("t"), Verb::Cancel).await;
    let task = node.task("t").await;
    assert_eq!(
        (task.status(), stage(&task, "a"), stage(&task, "last")),
        (TaskStatus::Cancelled, StageStatus::Cancelled, StageStatus::Cancelled)
    );
    assert_eq!(gate.cancelled().len(), 2);
    assert_eq!(node.does(of_task("t"), Verb::Cancel).await, 1, "twice is as good as once");
    assert!(node.refuses(of_task("t"), RETRY).await.contains("which is final"));
    assert!(node.engine.store().locks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_cuts_no_verb_and_no_submission_short() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = crate::support::Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    node.submit("{plan: p, max_concurrency: 100, stages: [{name: s, uses: gate}], tasks: [{matrix: {tenant: [1,2,3,4,5,6,7,8,9]}}]}").await;
    gate.inside(9).await;
    store.commits_take(std::time::Duration::from_secs(1));
    let asked = node.engine.operate(of_plan("p"), Verb::Cancel, milepost_core::task::By::new("gone"));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(10), asked).await.is_err());
    node.ended("p").await;
    assert_eq!(node.plan("p").await.counts.cancelled, 9);

    gate.open();
    let text = "{plan: q, stages: [{name: s, uses: gate}], tasks: [{id: q1}]}";
    let submitted = node.engine.submit(plan(text), Start::AtOnce, Resubmit::Same);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(10), submitted).await.is_err());
    node.until_stored("q1").await;
    node.until_status("q1", TaskStatus::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_read_keeps_no_other_from_being_cancelled() {
    let (world, journal) = (World::new(), Journal::default());
    let store = crate::support::Faulty::over(world.store());
    let node = world.node_on(store.clone(), Registry::new().with("noop", journal.kind()));
    let tasks: Vec<String> = (0..200).map(|i| format!("{{id: t{i}}}")).collect();
    let text = format!("{{plan: p, stages: [{{name: s, uses: noop}}], tasks: [{}]}}", tasks.join(","));
    node.engine.submit(plan(&text), Start::Later, Resubmit::Same).await.unwrap();
    store.damage(task_id("t3"));
    let effect = node.operate(of_plan("p"), Verb::Cancel).await.unwrap();
    assert_eq!((effect.tasks, effect.left.len(), &effect.left[0].task_id), (199, 1, &task_id("t3")));
    assert!(effect.left[0].reason.contains("`milepost store repair --task t3`"), "{}", effect.left[0].reason);
    let cancelled = node.plan("p").await;
    assert_eq!((cancelled.status, cancelled.counts.cancelled, cancelled.ended_at), (PlanStatus::Cancelled, 199, None));
    let refused = node.refuses(of_task("t3"), Verb::Cancel).await;
    assert!(refused.contains("damaged: the test says so") && refused.contains("store repair"), "{refused}");

    node.does(of_task("t3"), Verb::Repair).await;
    let ended = node.plan("p").await;
    assert_eq!((ended.status, ended.counts.failed, ended.ended_at.is_some()), (PlanStatus::Cancelled, 1, true));
    assert!(node.refuses(of_plan("p"), Verb::Repair).await.contains("for one task"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_reach_tasks_that_come_and_go_all_the_time() {
    let world = World::new();
    let journal = Journal::default();
    let node = Arc::new(world.node(Registry::new().with("noop", journal.kind())));
    let stages: Vec<String> = (0..20).map(|i| format!("{{name: s{i}, uses: noop}}")).collect();
    let tasks: Vec<String> = (0..20).map(|i| format!("{{id: t{i}}}")).collect();
    node.submit(&format!(
        "{{plan: p, max_concurrency: 3, stages: [{}], tasks: [{}]}}",
        stages.join(","),
        tasks.join(",")
    ))
    .await;
    let verbs = (0..20).map(|i| {
        let node = node.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                for verb in [Verb::Pause, Verb::Resume] {
                    match node.operate(of_task(&format!("t{i}")), verb).await {
                        Ok(_) | Err(VerbError::Rejected(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    futures::future::try_join_all(verbs).await.unwrap();
    // A pause may have been the last word.
    node.does(of_plan("p"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.counts.completed, 20);
    assert_eq!(journal.calls().len(), 400, "each stage of each task once");
}

#[tokio::test(start_paused = true)]
async fn a_verb_for_a_version_that_is_no_longer_the_newest_is_refused_and_changes_nothing() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Arc::new(milepost_store::memory::MemoryStore::new());
    let node = world.node_on(store, Registry::new().with("gate", gate.kind()));
    node.submit(
        "{plan: p, max_concurrency: 1, stages: [{name: s, uses: gate}], tasks: [{id: held, tenant: x}, {id: waits}]}",
    )
    .await;
    gate.inside(1).await;
    let plan_version = node.plan("p").await.version;
    for (target, found) in [
        (of_task("held"), node.task("held").await.version()),
        (of_tenant("x"), node.task("held").await.version()),
        (of_task("waits"), node.task("waits").await.version()),
        (of_plan("p"), plan_version),
    ] {
        let verb = if target == of_plan("p") { RETRY } else { Verb::Pause };
        for expected in [found - 1, found + 1] {
            let asked = node.engine.operate_expecting(target.clone(), verb, By::new("tester"), Some(expected)).await;
            let refused = asked.unwrap_err();
            assert!(
                matches!(refused, VerbError::Version { expected: e, found: f, .. } if e == expected && f == found),
                "{refused}"
            );
        }
    }
    assert!(node.task("held").await.pause_requested().is_none());
    for (target, version) in [
        (of_task("waits"), node.task("waits").await.version()),
        (of_task("held"), node.task("held").await.version()),
        (of_plan("p"), plan_version),
    ] {
        let asked = node.engine.operate_expecting(target, Verb::Pause, By::new("tester"), Some(version)).await;
        asked.expect("it is the newest");
    }
    assert!(node.task("held").await.pause_requested().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_plan_whose_checkpoints_are_blocked_says_what_runs_its_tasks_again() {
    let (world, flaky) = (World::new(), Flaky::default());
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    let plan_with = |first: &str| {
        let stages = format!("stages: [{{name: {first}, uses: flaky}}, {{name: b, uses: flaky}}]");
        format!(
            "{{plan: p, on_invalid_checkpoint: block, defaults: {{retry: {{max_attempts: 1}}}}, {stages}, tasks: [{{id: t}}]}}"
        )
    };
    flaky.fail("b", 1);
    node.run(&plan_with("a")).await;
    assert_eq!(node.status("t").await, TaskStatus::Failed);
    node.engine.submit(plan(&plan_with("other")), Start::Later, Resubmit::Update).await.unwrap();
    for verb in [Verb::Retry { from_checkpoint: true }, Verb::ResetFailed] {
        let refused = node.refuses(of_plan("p"), verb).await;
        assert!(refused.contains("retry it with --from-start"), "{refused}");
    }
    let now = node.engine.clock().now();
    let why = milepost_engine::explain(&**node.engine.store(), &task_id("t"), now, Default::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(why.next.as_deref(), Some("milepost retry t --from-start"));
    assert_eq!(node.does(of_plan("p"), Verb::Retry { from_checkpoint: false }).await, 1);
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn of_a_tenants_tasks_the_one_that_matters_most_is_meant() {
    use milepost_engine::task_of_tenant;
    let (world, gate, flaky) = (World::new(), Gate::shut(), Flaky::default());
    let node = world.node(Registry::new().with("gate", gate.kind()).with("flaky", flaky.kind()));
    let tenant = milepost_core::id::Tenant::parse("x").unwrap();
    let of_x = || async {
        let row = task_of_tenant(&**node.engine.store(), &tenant).await.unwrap();
        row.map(|row| row.key.id.to_string()).unwrap_or_default()
    };
    assert_eq!(of_x().await, "");
    let one = |id: &str, uses: &str| {
        format!(
            "{{plan: P-{id}, defaults: {{retry: {{max_attempts: 1}}}}, stages: [{{name: {id}, uses: {uses}}}], tasks: [{{id: {id}, tenant: x}}]}}"
        )
    };
    node.run(&one("done", "flaky")).await;
    flaky.fail("bad", 1);
    node.run(&one("bad", "flaky")).await;
    node.run(&one("newer", "flaky")).await;
    assert_eq!(of_x().await, "bad", "what has ended well does not hide what failed");
    node.submit(&one("first", "gate")).await;
    gate.inside(1).await;
    node.submit(&one("waits", "gate")).await;
    assert_eq!(of_x().await, "first", "the one at work");
    node.does(of_tenant("x"), Verb::Pause).await;
    gate.open();
    node.until_status("waits", TaskStatus::Completed).await;
    assert_eq!(of_x().await, "bad");
    node.engine.submit(plan(&one("later", "flaky")), Start::Later, Resubmit::Same).await.unwrap();
    assert_eq!(of_x().await, "bad", "nor does a new one that waits");
    node.does(of_tenant("x"), Verb::Retry { from_checkpoint: true }).await;
    node.until_status("bad", TaskStatus::Completed).await;
    assert_eq!(of_x().await, "later", "what is to run matters more than what has");
    node.does(of_task("later"), Verb::Pause).await;
    node.engine.submit(plan(&one("latest", "flaky")), Start::Later, Resubmit::Same).await.unwrap();
    assert_eq!(of_x().await, "later", "what somebody paused is not hidden by what waits for its turn");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_task_whose_node_is_gone_is_repaired() {
    let (world, gate) = (World::new(), Gate::shut());
    let store = Arc::new(milepost_store::memory::MemoryStore::new());
    let before = world.node_on(store.clone(), Registry::new().with("gate", gate.kind()));
    before.submit("{plan: p, recovery: manual, stages: [{name: s, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    let store = crate::support::Faulty::over(Arc::new(store.reopen()));
    store.damage(task_id("t"));
    let node = world.idle_node(store, Registry::new(), |_| {});
    node.does(of_task("t"), Verb::Repair).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn of_two_who_looked_at_the_same_version_of_a_plan_only_one_retries_resets_or_rolls_back_its_tasks() {
    for verb in [RETRY, Verb::ResetFailed, Verb::Rollback] {
        let (world, flaky) = (World::new(), Flaky::default());
        flaky.fail("t", 2);
        let store = Arc::new(milepost_store::memory::MemoryStore::new());
        let node = world.node_on(store, Registry::new().with("flaky", flaky.kind()));
        node.submit(
            "{plan: p, stages: [{name: s, uses: flaky, rollback: {uses: flaky}}, \
             {name: t, uses: flaky, retry: {max_attempts: 1}}], tasks: [{id: a}, {id: b}]}",
        )
        .await;
        let version = node.ended("p").await.version;
        let asks = |who: &'static str| node.engine.operate_expecting(of_plan("p"), verb, By::new(who), Some(version));
        let (one, other) = tokio::join!(asks("ann"), asks("bob"));
        let (done, refused) = if one.is_ok() { (one, other) } else { (other, one) };
        assert_eq!(done.expect("one of them did it").tasks, 2, "{verb:?}");
        assert!(
            matches!(refused, Err(VerbError::Version { expected, .. }) if expected == version),
            "{verb:?}: {refused:?}"
        );
        assert!(node.plan("p").await.version > version);
    }
}
