//! What stages leave behind, and what cannot be kept.

use milepost_core::failure::ErrorType;
use milepost_core::task::TaskStatus;
use milepost_engine::Registry;
use milepost_engine::stage::Outcome;

use crate::support::{Journal, World, error_type, kind};

fn giving(bytes: usize) -> std::sync::Arc<dyn milepost_engine::stage::StageKind> {
    kind(move |_| async move {
        let outputs = serde_json::json!({ "text": "x".repeat(bytes) });
        Outcome::Success { outputs: outputs.as_object().cloned().expect("an object") }
    })
}

#[tokio::test(start_paused = true)]
async fn a_result_of_more_than_a_mebibyte_fails_the_task_for_good_and_says_what_to_do() {
    let world = World::new();
    let node = world.node(Registry::new().with("large", giving(1024 * 1024 + 1)));
    node.run("{plan: p, stages: [{name: s, uses: large}], tasks: [{id: t}]}").await;
    let task = node.task("t").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::Failed, ErrorType::Persistence));
    assert!(task.failure().unwrap().cause.reason.contains("pass a reference"));
    assert_eq!(node.count("t", "STAGE_FAILED s 1").await, 1, "trying again would not make it smaller");
}

#[tokio::test(start_paused = true)]
async fn a_result_just_below_the_limit_is_kept() {
    let world = World::new();
    let node = world.node(Registry::new().with("large", giving(1024 * 1000)));
    node.run("{plan: p, stages: [{name: s, uses: large}], tasks: [{id: t}]}").await;
    let task = node.task("t").await;
    assert_eq!(task.status(), TaskStatus::Completed);
    assert_eq!(task.stage(0).1.outputs.as_ref().unwrap()["text"].as_str().unwrap().len(), 1024 * 1000);
}

#[tokio::test(start_paused = true)]
async fn a_stage_of_an_unknown_kind_fails_its_task_as_invalid_and_no_other() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    node.run(
        "{plan: p, tasks: [{id: a, stages: [{name: s, uses: nobody}]}, {id: b, stages: [{name: s, uses: noop}]}]}",
    )
    .await;
    assert_eq!(error_type(&node.task("a").await), ErrorType::Validation);
    assert_eq!(node.status("b").await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_parameter_that_cannot_be_rendered_fails_the_task_as_invalid() {
    let (world, journal) = (World::new(), Journal::default());
    let node = world.node(Registry::new().with("noop", journal.kind()));
    node.run("{plan: p, stages: [{name: s, uses: noop, with: {x: '{{ input.a.b.c }}'}}], tasks: [{id: t, input: {}}]}")
        .await;
    assert_eq!(error_type(&node.task("t").await), ErrorType::Validation);
    assert_eq!(journal.calls(), [""; 0]);
}
