//! A task that cannot be read, as people meet it: it holds nobody up, is shown as what it is, and ends by a repair.

use serde_json::Value;

use crate::support::{World, failing};

/// Makes the first row of a task's log that has this event fail its checksum.
fn damage(world: &World, task: &str, event: &str) {
    let file = rusqlite::Connection::open(world.path().join("milepost.db")).unwrap();
    let sql = "UPDATE events SET body = body || ' ' WHERE task = (SELECT no FROM task_configs WHERE id = ?1) \
               AND instr(body, ?2) > 0";
    assert_eq!(file.execute(sql, [task, event]).unwrap(), 1);
}

/// Stores a plan that nobody starts.
fn submit(world: &World, file: &str) {
    let server = world.serve(&["--allow-commands"]);
    world.good(&["submit", file, "--no-start", "--server", &server.url]);
    server.stop();
}

/// `a`, `b` and `c` of one tenant wait for their turn, and `a` cannot be read.
fn one_of_three() -> World {
    let world = World::new();
    world.file(
        "p.yaml",
        r#"plan: p
stages:
  - name: work
    run: echo "$MILEPOST_TASK" >> ran
tasks:
  - { id: a, tenant: x }
  - { id: b, tenant: x }
  - { id: c, tenant: x }
"#,
    );
    submit(&world, "p.yaml");
    damage(&world, "a", "TASK_CREATED");
    world
}

#[test]
fn a_damaged_task_holds_nobody_up_and_its_plan_ends_once_it_is_repaired() {
    let world = one_of_three();
    world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&[
        "task a cannot be run",
        "checksum",
        "milepost store repair --task a",
    ]);
    assert_eq!(world.read("ran"), "b\nc\n");
    world.good(&["status", "p"]).must_say(&["plan p RUNNING", "damaged", "`milepost store repair --task a` ends it"]);
    world.good(&["status", "a"]).must_say(&["task a PENDING", "damaged"]);
    world.good(&["explain", "a"]).must_say(&["cannot be read", "milepost store repair --task a"]);
    world.good(&["events", "a"]).must_say(&["EVENT_LOST"]);
    world.milepost(&["retry", "a", "--from-start"]).must_exit(5).must_say(&["milepost store repair --task a"]);
    world.milepost(&["store", "repair", "--task", "b"]).must_exit(5).must_say(&["nothing of it is damaged"]);
    world.milepost(&["store", "repair", "--task", "nobody"]).must_exit(4);

    let repaired = world.good(&["store", "repair", "--task", "a", "--reason", "disk was bad"]);
    repaired.must_say(&["a FAILED", "milepost events a", "milepost retry a --from-start"]);
    assert_eq!(world.status("p").as_deref(), Some("FAILED"));
    assert_eq!(world.events("a"), ["EVENT_LOST", "TASK_REPAIRED", "TASK_FAILED"]);
    world.good(&["explain", "a"]).must_say(&["milepost retry a --from-start"]);
    world.milepost(&["retry", "a"]).must_exit(5).must_say(&["--from-start"]);
    world.good(&["retry", "a", "--from-start"]);
    world.good(&["run", "p.yaml"]);
    assert_eq!(world.read("ran"), "b\nc\na\n");
    assert_eq!(world.status("p").as_deref(), Some("COMPLETED"));
}

#[test]
fn a_plan_with_a_damaged_task_is_cancelled_and_says_what_is_left() {
    let world = one_of_three();
    let cancelled = world.milepost(&["cancel", "p"]).must_exit(5);
    cancelled.must_say(&[
        "p CANCELLED, 2 tasks changed",
        "1 task was left as it was",
        "milepost store repair --task a",
    ]);
    let plan = world.json(&["status", "p"]);
    assert_eq!((&plan["status"], &plan["endedAt"]), (&"CANCELLED".into(), &Value::Null));
    world.good(&["store", "repair", "--task", "a"]);
    let plan = world.json(&["status", "p"]);
    assert_eq!(plan["status"], "CANCELLED");
    assert!(plan["endedAt"].is_string(), "{plan}");
}

#[test]
fn every_list_of_a_server_shows_a_damaged_task_and_its_repair_works_there() {
    let world = one_of_three();
    let server = world.serve(&["--allow-commands"]);
    server.post("/plans/p/start", "application/json", "{}");
    world.wait_for_status("c", "COMPLETED");
    for path in ["/plans", "/plans/p", "/plans/p/report", "/tasks/b"] {
        server.get(path);
    }
    let tasks = server.get("/plans/p/tasks");
    let a = tasks["items"].as_array().unwrap().iter().find(|task| task["taskId"] == "a").unwrap();
    assert!(a["damaged"].as_str().is_some_and(|why| why.contains("checksum")), "{a}");
    let there = ["store", "repair", "--task", "a", "--server", &server.url];
    world.good(&there).must_say(&["a FAILED"]);
    assert_eq!(server.get("/plans/p")["status"], "FAILED");
    server.stop();
}

#[test]
fn under_block_a_plan_says_what_runs_it_again_and_that_does() {
    let world = World::new();
    let text = format!("{}\non_invalid_checkpoint: block\n", failing("p").trim_end());
    world.file("p.yaml", &text);
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.file("p.yaml", &text.replace("name: first", "name: renamed"));
    world.milepost(&["run", "p.yaml", "--update"]).must_exit(1);
    world.milepost(&["retry", "p"]).must_exit(5).must_say(&["cannot retry task t", "--from-start"]);
    world.milepost(&["reset-failed", "p"]).must_exit(5).must_say(&["cannot retry task t", "--from-start"]);
    world.good(&["explain", "t"]).must_say(&["milepost retry t --from-start"]);
    world.file("mended", "");
    world.good(&["retry", "p", "--from-start"]);
    world.good(&["run", "p.yaml"]);
    assert_eq!(world.status("p").as_deref(), Some("COMPLETED"));
}

#[test]
fn what_a_tenant_is_asked_for_is_what_matters_most_of_it() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.file("q.yaml", "plan: q\nstages: [{name: s, run: 'true'}]\ntasks: [{id: newer, tenant: tenant-7}]\n");
    submit(&world, "q.yaml");
    world.good(&["status", "--tenant", "tenant-7"]).must_say(&["task t FAILED"]);
    let server = world.serve(&["--allow-commands"]);
    assert_eq!(server.get("/tenants/tenant-7/task")["taskId"], "t");
    assert_eq!(server.get("/tenants/tenant-7/checkpoint")["hasCheckpoint"], true);
    server.post("/tenants/tenant-7/rollback", "application/json", "{}");
    world.wait_for_status("t", "ROLLED_BACK");
    assert_eq!(server.get("/tenants/tenant-7/task")["taskId"], "newer");
    server.stop();
}
