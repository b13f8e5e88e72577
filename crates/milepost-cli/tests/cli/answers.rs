//! The shapes of what `--json` prints: scripts hold on to these keys.

use serde_json::Value;

use crate::support::{World, failing};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn world_with_a_failed_plan() -> World {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world
}

const PLAN: [&str; 11] = [
    "planId",
    "status",
    "tasks",
    "progress",
    "maxConcurrency",
    "version",
    "waitsForPerson",
    "changedBy",
    "createdAt",
    "startedAt",
    "endedAt",
];

#[test]
fn a_plans_status_has_its_counts_and_what_failed() {
    let world = world_with_a_failed_plan();
    let plan = world.json(&["status", "p"]);
    assert_eq!(keys(&plan), [&PLAN[..], &["running", "waiting", "failures"]].concat());
    let counts = ["total", "pending", "running", "paused", "completed", "failed", "cancelled"];
    assert_eq!(&keys(&plan["tasks"])[..7], counts);
    assert_eq!((&plan["tasks"]["total"], &plan["tasks"]["failed"]), (&1.into(), &1.into()));
    let failure = ["taskId", "tenantId", "status", "stage", "attempts", "errorType", "reason"];
    assert_eq!(keys(&plan["failures"][0]), failure);
    assert_eq!(plan["failures"][0]["stage"], "second");
}

#[test]
fn a_run_answers_like_status_with_its_failures() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    for _ in 0..2 {
        let run = world.milepost(&["run", "p.yaml", "--json"]).must_exit(1);
        let answer: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(keys(&answer), [&PLAN[..], &["failures"]].concat());
        assert_eq!(answer["status"], "FAILED");
    }
}

#[test]
fn a_list_of_plans_is_paged() {
    let world = World::new();
    for plan in ["a", "b", "c"] {
        world.file("p.yaml", &format!("plan: {plan}\nstages: [{{ name: s, uses: noop }}]\ntasks: [{{}}]\n"));
        world.good(&["run", "p.yaml"]);
    }
    let first = world.json(&["status", "--limit", "2"]);
    assert_eq!(keys(&first), ["items", "nextCursor"]);
    assert_eq!(keys(&first["items"][0]), PLAN);
    assert_eq!(first["items"][0]["planId"], "c");
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = world.json(&["status", "--limit", "2", "--cursor", cursor]);
    assert_eq!((&second["items"][0]["planId"], &second["nextCursor"]), (&"a".into(), &Value::Null));
    world.milepost(&["status", "--cursor", "x"]).must_exit(2);
}

#[test]
fn a_tasks_status_is_the_task_as_http_shows_it() {
    let world = world_with_a_failed_plan();
    let task = world.json(&["status", "t"]);
    for key in [
        "taskId",
        "planId",
        "tenantId",
        "status",
        "interrupted",
        "pauseRequested",
        "currentStage",
        "attempt",
        "retryContext",
        "blockedBy",
        "durable",
        "version",
        "createdAt",
        "startedAt",
        "endedAt",
        "stages",
        "failure",
    ] {
        assert!(task.get(key).is_some(), "no {key} in {task}");
    }
}

#[test]
fn events_are_a_list_with_a_cursor_and_filters() {
    let world = world_with_a_failed_plan();
    let all = world.json(&["events", "t"]);
    assert_eq!(keys(&all), ["items", "nextCursor"]);
    let event = [
        "taskId",
        "planId",
        "sequence",
        "eventType",
        "timestamp",
        "payload",
        "attemptNumber",
        "backoffDelayMs",
        "failureReason",
    ];
    assert_eq!(keys(&all["items"][0]), event);
    let total = all["items"].as_array().unwrap().len();
    let first = world.json(&["events", "t", "--limit", "2"]);
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = world.json(&["events", "t", "--after", cursor]);
    assert_eq!(rest["items"].as_array().unwrap().len(), total - 2);
    let attempts = world.json(&["events", "t", "--attempt", "1"]);
    assert!(attempts["items"].as_array().unwrap().iter().all(|event| event["attemptNumber"] == 1));
    let followed = world.good(&["events", "t", "--follow", "--json"]).stdout;
    assert_eq!(followed.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), total);
}

#[test]
fn verbs_answer_with_what_they_changed() {
    let world = world_with_a_failed_plan();
    let answer = world.json(&["retry", "t"]);
    assert_eq!(keys(&answer), ["target", "verb", "tasks", "plan", "task"]);
    assert_eq!((&answer["target"], &answer["verb"], &answer["tasks"]), (&"t".into(), &"retry".into(), &1.into()));
    assert_eq!((&answer["plan"]["id"], &answer["task"]["status"]), (&"p".into(), &"PENDING".into()));
    let answer = world.json(&["pause", "p"]);
    assert_eq!((&answer["plan"]["status"], &answer["task"]), (&"PAUSED".into(), &Value::Null));
}

#[test]
fn logs_and_checkpoints_are_json_too() {
    let world = world_with_a_failed_plan();
    let logs = world.json(&["logs", "t"]);
    assert_eq!(keys(&logs["items"][0]), ["stage", "attempt", "at", "text"]);
    assert_eq!(logs["items"][0]["text"], "it is broken\n");
    let checkpoint = world.json(&["checkpoint", "t"]);
    assert_eq!(checkpoint["hasCheckpoint"], true);
    assert_eq!(checkpoint["lastCompletedStageIndex"], 0);
}

#[test]
fn an_id_of_a_plan_and_of_a_task_means_the_plan() {
    let world = World::new();
    world.file("p.yaml", "plan: same\nstages: [{ name: s, uses: noop }]\ntasks: [{ id: same }]\n");
    world.good(&["run", "p.yaml"]);
    assert_eq!(world.json(&["status", "same"])["planId"], "same");
    assert!(world.json(&["status", "same"]).get("taskId").is_none());
}

#[test]
fn the_schema_is_json() {
    let world = World::new();
    let schema: Value = serde_json::from_str(&world.good(&["schema"]).stdout).unwrap();
    assert_eq!(schema["title"], "Milepost plan");
}
