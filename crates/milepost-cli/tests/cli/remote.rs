//! The command line as a client: what it asks of a server, and what it makes of the answers.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::canned::{Reply, Server};
use crate::support::{World, failing, wait_for};

/// A server that has what a store here has.
fn mirror(world: &World) -> Server {
    let answer = |args: &[&str]| Reply::json(world.good(&[args, &["--json"]].concat()).stdout);
    let mut detail: Value = world.json(&["status", "p"]);
    detail["taskIds"] = json!(["t"]);
    Server::new([
        ("GET /plans", answer(&["status"])),
        ("GET /plans/p", Reply::json(detail.to_string())),
        ("GET /plans/p/report", answer(&["status", "p"])),
        ("GET /tasks/t", answer(&["status", "t"])),
        ("GET /tasks/t/events", answer(&["events", "t"])),
        ("GET /tasks/t/logs", answer(&["logs", "t"])),
        ("GET /tasks/t/checkpoint", answer(&["checkpoint", "t"])),
        ("GET /tenants/tenant-7/task", answer(&["status", "t"])),
    ])
}

fn world_with_a_failed_plan() -> World {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world
}

fn plan(status: &str) -> Value {
    json!({
        "planId": "p", "status": status, "progress": 0.0, "maxConcurrency": 5, "version": 1, "changedBy": null,
        "tasks": {
            "total": 1, "pending": 0, "running": 1, "paused": 0, "completed": 0, "failed": 0, "cancelled": 0,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0,
        },
        "createdAt": "2025-11-04T10:00:00Z", "startedAt": null, "endedAt": null,
    })
}

fn with(mut value: Value, more: Value) -> String {
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value.to_string()
}

fn report(status: &str) -> Reply {
    Reply::json(with(plan(status), json!({ "running": [], "waiting": [], "failures": [] })))
}

fn detail(status: &str) -> Reply {
    Reply::json(with(plan(status), json!({ "taskIds": ["t"] })))
}

fn event(sequence: u64, kind: &str, payload: &Value) -> Value {
    json!({
        "taskId": "t", "planId": "p", "sequence": sequence, "eventType": kind, "timestamp": "2025-11-04T10:00:00Z",
        "payload": payload, "attemptNumber": null, "backoffDelayMs": null, "failureReason": null,
    })
}

/// A plan that is watched to its end.
fn life(end: &str) -> Reply {
    let state = |more: Value| ("state", with(json!({ "planId": "p" }), more));
    Reply::stream(&[
        ("snapshot", json!({ "plan": plan("RUNNING"), "tasks": [] }).to_string()),
        state(json!({ "taskId": "t", "events": [event(2, "TASK_STARTED", &json!({ "node": "n" }))] })),
        state(json!({ "planStatus": "PAUSED", "by": { "who": "ann", "why": "lunch" } })),
        state(json!({ "planStatus": "RUNNING", "by": { "who": "ann" } })),
        state(json!({ "taskId": "t", "events": [event(3, "TASK_COMPLETED", &json!({}))] })),
        ("end", json!({ "planId": "p", "planStatus": end }).to_string()),
    ])
}

#[test]
fn a_server_is_shown_as_a_store_is() {
    let world = world_with_a_failed_plan();
    let server = mirror(&world);
    for args in [
        vec!["status"],
        vec!["status", "p"],
        vec!["status", "t"],
        vec!["status", "--tenant", "tenant-7"],
        vec!["events", "t"],
        vec!["events", "t", "--follow"],
        vec!["logs", "t"],
        vec!["checkpoint", "t"],
    ] {
        for json in [&[][..], &["--json"]] {
            let args = [&args[..], json].concat();
            let here = world.good(&args);
            let there = world.good(&[&args[..], &["--server", &server.url]].concat());
            assert_eq!(there.stdout, here.stdout, "{args:?}");
            // Only that the next command must name the server as well.
            let there = there.stderr.replace(&format!(" --server {}", server.url), "");
            assert_eq!(there, here.stderr, "{args:?}");
        }
    }
}

#[test]
fn what_a_server_does_not_have_is_4_like_anywhere() {
    let world = world_with_a_failed_plan();
    let server = mirror(&world);
    for args in [
        vec!["status", "nobody"],
        vec!["status", "../etc"],
        vec!["status", "--tenant", "nobody"],
        vec!["pause", "nobody"],
        vec!["retry", "--tenant", "nobody"],
        vec!["reset-failed", "--tenant", "nobody"],
        vec!["events", "nobody"],
        vec!["logs", "t", "--stage", "third"],
        vec!["checkpoint", "nobody"],
        vec!["explain", "nobody"],
        vec!["watch", "nobody"],
    ] {
        world.milepost(&[&args[..], &["--server", &server.url]].concat()).must_exit(4);
    }
    let next = format!("milepost --server {} status p", server.url);
    world.milepost(&["events", "p", "--server", &server.url]).must_exit(4).must_say(&["it is a plan", &next]);
    world.milepost(&["watch", "t", "--server", &server.url]).must_exit(4).must_say(&["it is a task", "--follow"]);
}

#[test]
fn verbs_go_to_the_route_of_what_they_name_and_answer_like_anywhere() {
    let world = world_with_a_failed_plan();
    let answer = |plan: &str, task: Value| {
        let plan = json!({ "id": "p", "status": plan });
        Reply::json(json!({ "target": "?", "verb": "?", "tasks": 1, "plan": plan, "task": task }).to_string())
    };
    let task = json!({ "id": "t", "status": "PENDING", "pauseRequested": false });
    let server = Server::new([
        ("GET /plans/p", detail("RUNNING")),
        ("GET /tasks/t", Reply::json(world.good(&["status", "t", "--json"]).stdout)),
        ("GET /tenants/tenant-7/task", Reply::json(world.good(&["status", "t", "--json"]).stdout)),
        ("POST /plans/p/pause", answer("PAUSED", Value::Null)),
        ("POST /plans/p/reset-failed", Reply::json(r#"{"reset":2}"#)),
        ("POST /tasks/t/retry", answer("RUNNING", task.clone())),
        ("POST /tasks/t/reset-failed", Reply::json(r#"{"reset":1}"#)),
        ("POST /tasks/t/resume", Reply::problem(409, "refused", "cannot resume task t: it is FAILED", "")),
        ("POST /tenants/tenant-7/retry", answer("RUNNING", task)),
    ]);
    let ask = |args: &[&str]| world.milepost(&[args, &["--server", &server.url]].concat());
    ask(&["pause", "p", "--reason", "lunch"]).must_exit(0).must_say(&["p PAUSED, 1 task changed"]);
    let asked = server.asked().pop().unwrap();
    assert_eq!(asked.what, "POST /plans/p/pause");
    assert_eq!(serde_json::from_str::<Value>(&asked.body).unwrap()["reason"], "lunch");
    let retried = ask(&["retry", "t", "--from-start", "--json"]).must_exit(0);
    let retried: Value = serde_json::from_str(&retried.stdout).unwrap();
    assert_eq!((&retried["target"], &retried["verb"]), (&"t".into(), &"retry".into()));
    let asked = server.asked().pop().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&asked.body).unwrap()["fromCheckpoint"], false);
    // The server goes on by itself: nobody is told to run anything.
    assert_eq!(ask(&["retry", "--tenant", "tenant-7"]).must_exit(0).said(), "t PENDING\n");
    ask(&["reset-failed", "p"]).must_exit(0).must_say(&["p 2 failed tasks reset to PENDING"]);
    ask(&["reset-failed", "--tenant", "tenant-7"]).must_exit(0).must_say(&["1 failed task reset"]);
    ask(&["resume", "t"]).must_exit(5).must_say(&["error: cannot resume task t: it is FAILED"]);
    ask(&["start", "t"]).must_exit(5).must_say(&["a task is started with its plan"]);
}

#[test]
fn a_server_out_of_reach_is_3_and_the_message_says_which_and_what_to_check() {
    let world = World::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    for args in [vec!["status"], vec!["pause", "p"], vec!["watch", "p"], vec!["explain", "t"]] {
        let said = world.milepost(&[&args[..], &["--server", &url]].concat()).must_exit(3);
        said.must_say(&[&url, "milepost serve", "MILEPOST_SERVER"]);
    }
    world.milepost(&["status", "--server", "localhost:8080"]).must_exit(2).must_say(&["localhost:8080", "http://"]);
}

#[test]
fn a_server_that_refuses_the_token_is_3_and_names_where_one_is_looked_for() {
    let world = World::new();
    let server = Server::new([
        ("GET /plans", Reply::problem(401, "unauthorized", "a token is needed", "")),
        ("GET /plans/p", Reply::problem(403, "forbidden", "this token may only read", "")),
        ("GET /plans/q", Reply::problem(503, "store-out-of-reach", "the store is away", "")),
    ]);
    let ask = |args: &[&str]| world.milepost(&[args, &["--server", &server.url]].concat());
    ask(&["status"]).must_exit(3).must_say(&["error: a token is needed", "MILEPOST_TOKEN", "--token-file"]);
    ask(&["status", "p"]).must_exit(3).must_say(&["error: this token may only read", "MILEPOST_TOKEN"]);
    ask(&["status", "q"]).must_exit(3).must_say(&["error: the store is away", "try again"]);
}

#[test]
fn a_token_comes_from_a_file_or_the_environment_and_never_from_the_command_line() {
    let world = World::new();
    let server = Server::new([("GET /plans", Reply::json(r#"{"items":[],"nextCursor":null}"#))]);
    world.file("secret", "mp_file_1\n");
    world.file("other", "mp_config_1\n");
    world.file("milepost.toml", &format!("server = '{}'\ntoken_file = 'other'\n", server.url));
    let mut with_both = world.command(&["status", "--token-file", "secret"]);
    with_both.env("MILEPOST_TOKEN", "mp_env_1");
    world.start_command(with_both).end().must_exit(0);
    let mut with_environment = world.command(&["status"]);
    with_environment.env("MILEPOST_TOKEN", "mp_env_1");
    world.start_command(with_environment).end().must_exit(0);
    world.good(&["status"]);
    let tokens: Vec<_> = server.asked().into_iter().filter_map(|asked| asked.token).collect();
    assert_eq!(tokens, ["mp_file_1", "mp_env_1", "mp_config_1"]);
    world.milepost(&["status", "--token", "mp_x"]).must_exit(2);
    world.file("secret", "\n");
    world.milepost(&["status", "--token-file", "secret"]).must_exit(2).must_say(&["there is no token in secret"]);
    world.milepost(&["status", "--token-file", "nowhere"]).must_exit(2).must_say(&["nowhere"]);
}

#[test]
fn who_names_a_store_names_no_server_and_flags_beat_the_environment_beats_the_file() {
    let world = world_with_a_failed_plan();
    let server = Server::new([("GET /plans", Reply::json(r#"{"items":[],"nextCursor":null}"#))]);
    let here = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = world.command(args);
        command.envs(environment.iter().copied());
        let answer = world.start_command(command).end().must_exit(0).stdout;
        !serde_json::from_str::<Value>(&answer).unwrap()["items"].as_array().unwrap().is_empty()
    };
    let (there, store) = (("MILEPOST_SERVER", server.url.as_str()), ("MILEPOST_STORE", "sqlite:milepost.db"));
    assert!(here(&["status", "--json"], &[]));
    assert!(!here(&["status", "--json"], &[there]));
    assert!(!here(&["status", "--json"], &[there, store]));
    assert!(here(&["status", "--json", "--store", "sqlite:milepost.db"], &[there]));
    assert!(!here(&["status", "--json", "--server", &server.url], &[store]));
    world.file("milepost.toml", &format!("server = '{}'\nstore = 'sqlite:milepost.db'\n", server.url));
    assert!(!here(&["status", "--json"], &[]));
    assert!(here(&["status", "--json"], &[store]));
    let both = ["status", "--store", "sqlite:milepost.db", "--server", &server.url];
    world.milepost(&both).must_exit(2).must_say(&["--store and --server"]);
    let before = ["--server", &server.url, "status", "--store", "sqlite:milepost.db"];
    world.milepost(&before).must_exit(2).must_say(&["--store and --server"]);
    world.milepost(&["run", "p.yaml", "--server", &server.url]).must_exit(2).must_say(&["submit FILE"]);
    // What is in the configuration is for the commands that can use it.
    world.milepost(&["run", "p.yaml"]).must_exit(1);
}

fn accepted(more: Value) -> Reply {
    Reply::json(with(plan("RUNNING"), with_defaults(more)))
}

fn with_defaults(more: Value) -> Value {
    let mut accepted = json!({ "created": true, "added": 1, "removed": 0 });
    accepted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    accepted
}

const PLAN: &str = "plan: p\nstages: [{ name: a, uses: only-the-server-knows }]\ntasks: [{ id: t }]\n";

#[test]
fn a_plan_is_handed_to_a_server_as_it_is_and_started_unless_told_otherwise() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    let server = Server::new([("POST /plans", accepted(json!({})))]);
    let ask = |args: &[&str]| world.milepost(&[args, &["--server", &server.url]].concat()).must_exit(0);
    let next = format!("`milepost --server {} watch p` follows it", server.url);
    ask(&["submit", "p.yaml"]).must_say(&["p RUNNING, 1 task\n", &next]);
    ask(&["submit", "p.yaml", "--no-start", "--update"]).must_say(&["start p` runs it"]);
    let asked = server.asked();
    assert_eq!(asked[0].what, "POST /plans?start=true");
    assert_eq!(asked[0].body, PLAN);
    assert_eq!(asked[1].what, "POST /plans?start=false&update=true");
    let answer: Value = serde_json::from_str(&ask(&["submit", "p.yaml", "--json"]).stdout).unwrap();
    assert_eq!((&answer["planId"], &answer["created"]), (&"p".into(), &true.into()));
}

#[test]
fn submit_without_a_server_says_what_to_do() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    world.milepost(&["submit", "p.yaml"]).must_exit(2).must_say(&["--server URL", "milepost run p.yaml"]);
}

#[test]
fn a_bad_plan_is_refused_in_the_words_of_check_by_whom_ever() {
    let world = World::new();
    let server = Server::new([(
        "POST /plans",
        Reply::problem(
            422,
            "invalid-plan",
            "1 error in the plan",
            r#"{"message":"there is no stage kind `nope`; known are copy-table, file.checksum, file.copy, file.rename, http, image.thumbnail, noop, run","path":"stages[0].uses","line":2,"column":27}"#,
        ),
    )]);
    let submit = |file: &str, json: &[&str]| {
        world.milepost(&[&["submit", file, "--server", &server.url], json].concat()).must_exit(2)
    };
    // What can be known here never reaches the server.
    world.file("bad.yaml", "plan: a/b\nstages: [{ name: a, uses: noop }]\ntasks: [{ id: t }]\n");
    assert_eq!(submit("bad.yaml", &[]).said(), world.milepost(&["check", "bad.yaml"]).must_exit(2).said());
    assert_eq!(server.asked().len(), 0);
    // What only the server knows looks the same.
    world.file("bad.yaml", "plan: p\nstages: [{ name: a, uses: nope }]\ntasks: [{ id: t }]\n");
    let here = world.milepost(&["check", "bad.yaml"]).must_exit(2).stderr;
    assert_eq!(submit("bad.yaml", &[]).stderr, here);
    let errors: Value = serde_json::from_str(&submit("bad.yaml", &["--json"]).stdout).unwrap();
    assert_eq!((&errors[0]["line"], &errors[0]["column"]), (&2.into(), &27.into()));
    submit("missing.yaml", &[]).must_say(&["missing.yaml"]);
}

#[test]
fn other_content_is_2_and_says_how_to_update() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    let clash = Reply::problem(409, "clash", "plan p exists with other content: task t", "");
    let server = Server::new([("POST /plans", clash)]);
    let said = world.milepost(&["submit", "p.yaml", "--server", &server.url]).must_exit(2);
    said.must_say(&["exists with other content", "submit p.yaml --update"]);
}

#[test]
fn a_plan_is_watched_to_its_end_and_the_exit_code_says_how_it_ended() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    for (end, code) in [("COMPLETED", 0), ("FAILED", 1), ("CANCELLED", 1)] {
        let server = Server::new([
            ("GET /plans/p", detail("RUNNING")),
            ("GET /plans/p/report", report(end)),
            ("GET /plans/p/progress/stream", life(end)),
            ("POST /plans", accepted(json!({}))),
        ]);
        let resume = format!("plan p was paused by ann (lunch); `milepost --server {} resume p` goes on", server.url);
        let words = ["plan p: 1 task, 5 at once", "t started", &resume, "plan p goes on", "t COMPLETED"];
        for args in [vec!["watch", "p"], vec!["submit", "p.yaml", "--watch"]] {
            let seen = world.milepost(&[&args[..], &["--server", &server.url]].concat()).must_exit(code);
            let seen = seen.must_say(&words);
            assert!(seen.stdout.ends_with(&format!("plan p {end}: 1 task (1 running)\n")), "{}", seen.stdout);
            let lines = world.milepost(&[&args[..], &["--server", &server.url, "--json"]].concat()).must_exit(code);
            let kinds: Vec<String> = lines.stdout.lines().map(kind).collect();
            assert_eq!(kinds, ["snapshot", "state", "state", "state", "state", "end"]);
        }
    }
}

fn kind(line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap();
    event["event"].as_str().unwrap().to_owned()
}

#[test]
fn a_watcher_that_is_interrupted_is_130_and_changes_nothing() {
    let world = World::new();
    let snapshot = json!({ "plan": plan("RUNNING"), "tasks": [] }).to_string();
    let server = Server::new([
        ("GET /plans/p", detail("RUNNING")),
        ("GET /plans/p/progress/stream", Reply::stream(&[("snapshot", snapshot)]).that_stays_open()),
    ]);
    let watch = world.start(&["watch", "p", "--server", &server.url]);
    watch.wait_to_say("plan p: 1 task");
    watch.signal(Signal::INT);
    watch.end().must_exit(130);
    wait_for("only questions", || server.asked().iter().all(|asked| asked.what.starts_with("GET")).then_some(()));
}

#[test]
fn an_explanation_is_the_servers_words_and_what_to_do() {
    let world = world_with_a_failed_plan();
    let explanation = json!({
        "taskId": "t", "planId": "p", "status": "FAILED", "reason": "FAILED",
        "message": "stage second failed for good", "next": "milepost retry t", "data": { "stage": "second" },
    });
    let server = Server::new([
        ("GET /tasks/t", Reply::json(world.good(&["status", "t", "--json"]).stdout)),
        ("GET /tasks/t/explain", Reply::json(explanation.to_string())),
    ]);
    let said = world.good(&["explain", "t", "--server", &server.url]);
    assert_eq!(said.stdout, "task t FAILED: stage second failed for good\n  next: milepost retry t\n");
    let answer: Value =
        serde_json::from_str(&world.good(&["explain", "t", "--json", "--server", &server.url]).stdout).unwrap();
    assert_eq!(answer, explanation);
}
