//! Which stage runs when.

use milepost_core::task::{Event, PlanStatus, TaskStatus};
use milepost_engine::Registry;
use milepost_engine::stage::Outcome;
use milepost_store::EventQuery;

use crate::support::{Gate, Journal, World, kind, stage};

#[tokio::test(start_paused = true)]
async fn a_stage_of_a_chain_runs_only_after_the_completion_of_the_one_before_is_in_the_store() {
    let world = World::new();
    let store = world.store();
    let seen = store.clone();
    let journal = Journal::default();
    let probe = {
        let journal = journal.clone();
        kind(move |call| {
            let (store, journal) = (seen.clone(), journal.clone());
            async move {
                let query = EventQuery { task: call.task.clone(), after: 0, limit: usize::MAX };
                let events = store.events(query).await.expect("a log");
                let completed =
                    events.iter().filter(|event| matches!(event.record.event(), Event::StageCompleted { .. }));
                let expected: usize = call.stage.as_str()[1..].parse().expect("stages are named s0, s1, …");
                assert_eq!(completed.count(), expected, "when {} ran", call.stage);
                let last = events.last().expect("its own start").record.event();
                assert!(matches!(last, Event::StageStarted { stage, attempt: 1, .. } if *stage == call.stage));
                journal.note(&call);
                Outcome::success()
            }
        })
    };
    let node = world.node_on(store, Registry::new().with("probe", probe));
    let stages: String = (0..5).map(|i| format!("  - {{ name: s{i}, uses: probe }}\n")).collect();
    let row = node.run(&format!("plan: p\nstages:\n{stages}tasks: [{{ id: t }}]")).await;
    assert_eq!(row.status, PlanStatus::Completed);
    assert_eq!(journal.calls(), ["t/s0/1", "t/s1/1", "t/s2/1", "t/s3/1", "t/s4/1"]);
}

const DIAMOND: &str = "
plan: p
stages:
  - { name: first, uses: noop }
  - { name: left, uses: gate, needs: [first] }
  - { name: middle, uses: gate, needs: [first] }
  - { name: right, uses: gate, needs: [first] }
  - { name: last, uses: noop, needs: [left, middle, right] }
tasks: [{ id: t }]";

#[tokio::test(start_paused = true)]
async fn stages_that_are_ready_run_at_once_and_what_needs_them_waits_for_all() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()).with("gate", gate.kind()));
    node.submit(DIAMOND).await;
    gate.inside(3).await;
    gate.let_go(2);
    node.until("t", |task| task.done().len() == 3).await;
    assert_eq!(journal.calls(), ["t/first/1"], "the last one waits for the third");
    gate.let_go(1);
    node.ended("p").await;
    assert_eq!(journal.calls(), ["t/first/1", "t/last/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stage_whose_if_is_false_is_skipped_and_what_needs_it_runs() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    let row = node
        .run("{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: noop, if: 'input.deep'}, {name: c, uses: noop}], tasks: [{id: t, input: {deep: false}}]}")
        .await;
    assert_eq!(row.status, PlanStatus::Completed);
    assert_eq!(journal.calls(), ["t/a/1", "t/c/1"]);
    assert_eq!(node.count("t", "STAGE_SKIPPED b").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_skips_itself_counts_as_done() {
    let (world, journal) = (World::new(), Journal::default());
    let skip = kind(|_| async { Outcome::Skip { reason: "nothing to do".to_owned() } });
    let node = world.node(Registry::new().with("noop", journal.kind()).with("skip", skip));
    node.run("{plan: p, stages: [{name: a, uses: skip}, {name: b, uses: noop}], tasks: [{id: t}]}").await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(journal.calls(), ["t/b/1"]);
}

#[tokio::test(start_paused = true)]
async fn parameters_are_rendered_with_the_outputs_of_earlier_stages_and_the_input() {
    let world = World::new();
    let give = kind(|_| async {
        let outputs = serde_json::json!({ "n": 7, "list": ["x"] });
        Outcome::Success { outputs: outputs.as_object().cloned().expect("an object") }
    });
    let take = kind(|call| async move {
        assert_eq!(call.with, serde_json::json!({ "n": 7, "text": "7 for acme", "deep": [{ "first": "x" }] }));
        Outcome::success()
    });
    let node = world.node(Registry::new().with("give", give).with("take", take));
    let row = node
        .run(
            "
plan: p
stages:
  - { name: a, uses: give }
  - name: b
    uses: take
    with:
      n: '{{ stages.a.outputs.n }}'
      text: '{{ stages.a.outputs.n }} for {{ input.who }}'
      deep: [{ first: '{{ stages.a.outputs.list[0] }}' }]
tasks: [{ id: t, input: { who: acme } }]",
        )
        .await;
    assert_eq!(row.status, PlanStatus::Completed, "{:?}", node.task("t").await.failure());
}

#[tokio::test(start_paused = true)]
async fn priority_comes_before_position() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    node.run("{plan: p, max_concurrency: 1, stages: [{name: s, uses: noop}], tasks: [{id: a}, {id: b, priority: 5}, {id: c, priority: 9}]}")
        .await;
    assert_eq!(journal.calls(), ["c/s/1", "b/s/1", "a/s/1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_new_starts_beside_a_stage_that_failed_for_good_and_what_runs_may_end_well() {
    let (world, gate, journal) = (World::new(), Gate::shut(), Journal::default());
    let fail = kind(|_| async {
        Outcome::Failure(milepost_core::failure::Failure::fatal(milepost_core::failure::ErrorType::Business, "no"))
    });
    let registry = Registry::new().with("noop", journal.kind()).with("gate", gate.kind()).with("fail", fail);
    let node = world.node(registry);
    node.submit(
        "{plan: p, stages: [{name: slow, uses: gate, needs: []}, {name: bad, uses: fail, needs: []}, {name: after, uses: noop, needs: [slow]}], tasks: [{id: t}]}",
    )
    .await;
    node.until("t", |task| stage(task, "bad") == milepost_core::task::StageStatus::Failed).await;
    assert_eq!(node.status("t").await, TaskStatus::Running);
    gate.open();
    node.ended("p").await;
    let task = node.task("t").await;
    assert_eq!(
        (task.status(), stage(&task, "slow")),
        (TaskStatus::Failed, milepost_core::task::StageStatus::Completed)
    );
    assert_eq!(journal.calls(), [""; 0]);
}
