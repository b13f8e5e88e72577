//! A server that dies or is told to leave in the middle of its work, and the next one, by requests alone.

use serde_json::{Value, json};

use crate::served::Served;
use crate::support::{World, wait_for};

/// Each stage writes its name into `lines-TASK`. The second says by `started-TASK` that it runs, and waits for
/// `go-PLAN`.
fn three_stages(plan: &str, recovery: &str, tasks: &str) -> String {
    format!(
        r#"plan: {plan}
recovery: {recovery}
stages:
  - name: one
    run: echo one >> "lines-$MILEPOST_TASK"
  - name: two
    run: |
      echo two >> "lines-$MILEPOST_TASK"
      touch "started-$MILEPOST_TASK"
      while [ ! -e "go-$MILEPOST_PLAN" ]; do sleep 0.02; done
  - name: three
    run: echo three >> "lines-$MILEPOST_TASK"
tasks: [{tasks}]
"#
    )
}

/// A server with a plan of each kind, all of whose tasks are in their second stage.
fn in_the_middle(world: &World) -> Served {
    let served = world.serve(&["--allow-commands"]);
    let manual = "{ id: m-1, tenant: 'eu/tenant 1' }, { id: m-2, tenant: tenant-2 }";
    for plan in
        [three_stages("manual", "manual", manual), three_stages("auto", "auto", "{ id: a-1, tenant: tenant-3 }")]
    {
        served.post("/plans?start=true", "application/yaml", &plan);
    }
    for task in ["m-1", "m-2", "a-1"] {
        world.wait_for_file(&format!("started-{task}"));
    }
    served
}

/// From now on `started-TASK` says that it was started after this.
fn forget_the_starts(world: &World) {
    for task in ["m-1", "m-2", "a-1"] {
        std::fs::remove_file(world.path().join(format!("started-{task}"))).unwrap();
    }
}

fn lines(world: &World, task: &str) -> String {
    world.read(&format!("lines-{task}")).replace('\n', " ")
}

fn wait_until(served: &Served, path: &str, status: &str) {
    wait_for(&format!("{path} to be {status}"), || (served.get(path)["status"] == status).then_some(()));
}

fn retry(served: &Served, tenant: &str, from_checkpoint: bool) -> Value {
    let body = json!({ "fromCheckpoint": from_checkpoint }).to_string();
    served.post(&format!("/tenants/{tenant}/retry"), "application/json", &body)
}

/// `TYPE stage` of each event, or its type alone.
fn events(served: &Served, task: &str) -> Vec<String> {
    let events = served.get(&format!("/tasks/{task}/events"));
    let events = events["items"].as_array().unwrap().iter().map(|event| {
        let kind = event["eventType"].as_str().unwrap();
        event["payload"]["stage"].as_str().map_or(kind.to_owned(), |stage| format!("{kind} {stage}"))
    });
    events.collect()
}

/// As the API shows a task whose node is gone and whose plan waits for a person.
fn is_interrupted(served: &Served, tenant: &str, id: &str) {
    let task = served.get(&format!("/tenants/{tenant}/task"));
    assert_eq!((&task["taskId"], &task["status"], &task["interrupted"]), (&json!(id), &json!("RUNNING"), &json!(true)));
    let checkpoint = served.get(&format!("/tenants/{tenant}/checkpoint"));
    assert_eq!((&checkpoint["hasCheckpoint"], &checkpoint["completedStageNames"]), (&json!(true), &json!(["one"])));
    let why = served.get(&format!("/tasks/{id}/explain"));
    assert_eq!((&why["reason"], &why["data"]["recovery"]), (&json!("INTERRUPTED"), &json!("manual")));
    // Nobody else may have the tenant while it is not known what becomes of its task.
    assert_eq!(served.get(&format!("/tenants/{tenant}/lock"))["owner"], format!("manual:{id}"));
}

#[test]
fn after_a_crash_auto_goes_on_by_itself_and_manual_when_a_person_retries_it() {
    let world = World::new();
    in_the_middle(&world).kill();
    forget_the_starts(&world);

    // It answers as soon as it listens, and the same after one more crash.
    let served = world.serve(&["--allow-commands"]);
    is_interrupted(&served, "eu%2Ftenant%201", "m-1");
    served.kill();
    let served = world.serve(&["--allow-commands"]);
    is_interrupted(&served, "eu%2Ftenant%201", "m-1");
    is_interrupted(&served, "tenant-2", "m-2");

    // The other plan goes on, to its end, and all the while nothing of this one runs.
    world.file("go-auto", "");
    wait_until(&served, "/plans/auto", "COMPLETED");
    let repeated = lines(&world, "a-1");
    assert!(repeated.starts_with("one two two ") && repeated.ends_with("two three "), "{repeated}");
    wait_for("the node to have nothing in hand", || (served.get("/nodes")["items"][0]["inHand"] == 0).then_some(()));
    for (task, tenant) in [("m-1", "eu%2Ftenant%201"), ("m-2", "tenant-2")] {
        assert!(!world.exists(&format!("started-{task}")));
        assert_eq!(lines(&world, task), "one two ");
        is_interrupted(&served, tenant, task);
    }

    // One tenant's task goes on where it stopped; the other's still waits.
    let before = events(&served, "m-1").len();
    let retried = retry(&served, "eu%2Ftenant%201", true);
    assert_eq!((&retried["task"]["id"], &retried["tasks"]), (&json!("m-1"), &json!(1)));
    world.wait_for_file("started-m-1");
    assert_eq!(lines(&world, "m-1"), "one two two ");
    is_interrupted(&served, "tenant-2", "m-2");
    world.file("go-manual", "");
    wait_until(&served, "/tasks/m-1", "COMPLETED");
    assert_eq!(lines(&world, "m-1"), "one two two three ");
    let log = events(&served, "m-1");
    let after = &log[before..];
    assert!(after.contains(&"TASK_INTERRUPTED".to_owned()) && after.contains(&"TASK_RETRIED".to_owned()), "{after:?}");
    assert!(!after.contains(&"STAGE_STARTED one".to_owned()), "{after:?}");
    assert_eq!(log.iter().filter(|event| *event == "STAGE_COMPLETED one").count(), 1, "{log:?}");
    assert_eq!(served.get("/plans/manual")["status"], "RUNNING");

    // From the start, it does everything again.
    retry(&served, "tenant-2", false);
    wait_until(&served, "/plans/manual", "COMPLETED");
    assert_eq!(lines(&world, "m-2"), "one two one two three ");
    assert_eq!(served.get("/locks")["items"], json!([]));
    served.stop();
}

#[test]
fn a_server_that_is_told_to_leave_lets_stages_end_and_the_next_one_goes_on_after_them() {
    let world = World::new();
    let mut served = in_the_middle(&world);
    served.running.signal(rustix::process::Signal::TERM);
    served.running.wait_to_say("stopping after the running stages");
    assert_eq!((served.status("/readyz"), served.status("/healthz")), (503, 200));
    assert!(served.running.is_running());
    world.file("go-auto", "");
    world.file("go-manual", "");
    served.running.end().must_exit(0);
    for task in ["m-1", "m-2", "a-1"] {
        assert_eq!(lines(&world, task), "one two ", "the running stage ends, and no other begins");
    }

    let served = world.serve(&["--allow-commands"]);
    wait_until(&served, "/plans/auto", "COMPLETED");
    assert_eq!(lines(&world, "a-1"), "one two three ");
    let task = served.get("/tenants/tenant-2/task");
    assert_eq!((&task["status"], &task["interrupted"]), (&json!("RUNNING"), &json!(true)));
    let checkpoint = served.get("/tenants/tenant-2/checkpoint");
    assert_eq!(checkpoint["completedStageNames"], json!(["one", "two"]));
    served.post("/plans/manual/retry", "application/json", "{}");
    wait_until(&served, "/plans/manual", "COMPLETED");
    assert_eq!((lines(&world, "m-1"), lines(&world, "m-2")), ("one two three ".into(), "one two three ".into()));
    served.stop();
}

/// Each task says by `started-TASK` that it runs, and waits for `go-TASK`; one runs at a time.
fn one_at_a_time(plan: &str, says: &str, tasks: &str) -> String {
    format!(
        r#"plan: {plan}
max_concurrency: 1
{says}
stages:
  - name: only
    run: |
      touch "started-$MILEPOST_TASK"
      while [ ! -e "go-$MILEPOST_TASK" ]; do sleep 0.02; done
tasks: [{tasks}]
"#
    )
}

/// A plan that minds nothing has run to its end, so the node has claimed all that it claims by itself.
fn the_node_has_claimed(world: &World, served: &Served, task: &str) {
    world.file(&format!("go-{task}"), "");
    let plan = one_at_a_time(&format!("of-{task}"), "recovery: auto", &format!("{{ id: {task} }}"));
    served.post("/plans?start=true", "application/yaml", &plan);
    wait_until(served, &format!("/plans/of-{task}"), "COMPLETED");
}

#[test]
fn after_a_stop_or_a_crash_nothing_of_a_manual_plan_starts_by_itself_not_even_what_never_ran() {
    // The plan says so, or it says nothing and the node does.
    for (says, setting) in [("recovery: manual", ""), ("", "recovery = \"manual\"\n")] {
        let world = World::new();
        world.file("milepost.toml", setting);
        let served = world.serve(&["--allow-commands"]);
        let tasks = "{ id: t-1 }, { id: t-2 }, { id: t-3 }, { id: t-4 }";
        served.post("/plans?start=true", "application/yaml", &one_at_a_time("p", says, tasks));
        world.wait_for_file("started-t-1");
        served.running.signal(rustix::process::Signal::TERM);
        served.running.wait_to_say("stopping after the running stages");
        world.file("go-t-1", "");
        served.running.end().must_exit(0);

        let served = world.serve(&["--allow-commands"]);
        the_node_has_claimed(&world, &served, "after-a-stop");
        served.running.wait_to_say("`milepost resume p`");
        assert!(!world.exists("started-t-2"));
        assert_eq!(served.get("/plans/p")["waitsForPerson"], json!(true));
        let why = served.get("/tasks/t-2/explain");
        assert_eq!(why["reason"], "INTERRUPTED");
        let next = why["next"].as_str().unwrap();
        assert!(next.contains("milepost resume t-2") && next.contains("milepost resume p"), "{next}");
        world.good(&["status", "p"]).must_say(&["its recovery is manual", "resume p", "for a person to set it going"]);

        // One task can be set going alone.
        world.good(&["resume", "t-3"]);
        world.wait_for_file("started-t-3");
        world.file("go-t-3", "");
        wait_until(&served, "/tasks/t-3", "COMPLETED");
        the_node_has_claimed(&world, &served, "after-one");
        assert!(!world.exists("started-t-2") && !world.exists("started-t-4"));

        // A plan goes on as before, until the node is gone again.
        served.post("/plans/p/retry", "application/json", "{}");
        world.wait_for_file("started-t-2");
        served.kill();
        let served = world.serve(&["--allow-commands"]);
        the_node_has_claimed(&world, &served, "after-a-crash");
        assert!(!world.exists("started-t-4"));
        served.stop();

        // What a person says while no node is there holds for the next one.
        world.file("go-t-2", "");
        world.file("go-t-4", "");
        world.good(&["resume", "p"]);
        let served = world.serve(&["--allow-commands"]);
        wait_until(&served, "/plans/p", "COMPLETED");
        served.stop();
    }
}
