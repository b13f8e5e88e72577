//! The command line and a real server: what is said over HTTP is what the store here says.

use serde_json::Value;

use crate::served::Served;
use crate::support::{World, failing, gated};

/// The arguments, for this server.
fn at<'a>(server: &'a Served, args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--server", &server.url]].concat()
}

fn without_server(said: &str, server: &Served) -> String {
    said.replace(&format!(" --server {}", server.url), "")
}

#[test]
fn a_plan_is_submitted_watched_and_looked_at_over_http_as_on_the_store() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let server = world.serve(&["--allow-commands"]);
    let watched = world.milepost(&at(&server, &["submit", "p.yaml", "--watch"])).must_exit(1);
    watched.must_say(&["plan p FAILED", "t FAILED at second", "it is broken"]);
    for args in [
        vec!["status"],
        vec!["status", "p"],
        vec!["status", "t"],
        vec!["status", "--tenant", "tenant-7"],
        vec!["events", "t"],
        vec!["events", "t", "--limit", "2"],
        vec!["events", "t", "--attempt", "1"],
        vec!["events", "t", "--follow"],
        vec!["logs", "t"],
        vec!["logs", "t", "--stage", "second", "--attempt", "1"],
        vec!["checkpoint", "t"],
        vec!["explain", "t"],
        vec!["watch", "p"],
    ] {
        for json in [&[][..], &["--json"]] {
            let args = [&args[..], json].concat();
            let here = world.milepost(&args);
            let there = world.milepost(&at(&server, &args));
            assert_eq!(there.code, here.code, "{args:?}: {}", there.said());
            assert_eq!(without_server(&there.stdout, &server), here.stdout, "{args:?}");
            assert_eq!(without_server(&there.stderr, &server), here.stderr, "{args:?}");
        }
    }
    server.stop();
}

#[test]
fn verbs_over_http_are_done_by_the_server_which_goes_on_by_itself() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t", "u"]));
    let server = world.serve(&["--allow-commands"]);
    world.good(&at(&server, &["submit", "p.yaml", "--no-start"])).must_say(&["p READY, 2 tasks"]);
    let watch = world.start(&at(&server, &["watch", "p"]));
    watch.wait_to_say("plan p: 2 tasks");
    world.good(&at(&server, &["start", "p"])).must_say(&["p RUNNING"]);
    world.wait_for_file("started-t");
    world.wait_for_file("started-u");
    world.good(&at(&server, &["pause", "p", "--reason", "lunch"])).must_say(&["p PAUSED"]);
    watch.wait_to_say("plan p was paused by");
    world.milepost(&at(&server, &["start", "t"])).must_exit(5);
    world.file("go", "");
    world.wait_for_status("t", "PAUSED");
    world.wait_for_status("u", "PAUSED");
    world.good(&at(&server, &["resume", "p"])).must_say(&["p RUNNING"]);
    watch.end().must_exit(0).must_say(&["plan p goes on", "plan p COMPLETED"]);
    world.milepost(&at(&server, &["pause", "p"])).must_exit(5).must_say(&["cannot pause plan p: it is COMPLETED"]);
    world.milepost(&at(&server, &["pause", "nobody"])).must_exit(4);
    server.stop();
}

#[test]
fn a_failed_task_is_reset_and_retried_over_http() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let server = world.serve(&["--allow-commands"]);
    world.milepost(&at(&server, &["submit", "p.yaml", "--watch"])).must_exit(1);
    let reset = world.good(&at(&server, &["reset-failed", "p", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&reset.stdout).unwrap(), serde_json::json!({ "reset": 1 }));
    assert_eq!(world.status("p").as_deref(), Some("READY"));
    world.file("mended", "");
    world.good(&at(&server, &["start", "p"]));
    world.good(&at(&server, &["watch", "p"])).must_say(&["plan p COMPLETED"]);
    assert_eq!(world.read("ran"), "first\nsecond\nsecond\n");
    server.stop();
}

#[test]
fn a_bad_plan_is_refused_over_http_in_the_words_of_check() {
    let world = World::new();
    let server = world.serve(&["--allow-commands"]);
    for text in ["plan: a/b\n", "plan: p\nstages: [{ name: a, uses: nope }]\ntasks: [{ id: t }]\n"] {
        world.file("bad.yaml", text);
        for json in [&[][..], &["--json"]] {
            let here = world.milepost(&[&["check", "bad.yaml"], json].concat()).must_exit(2).said();
            let there = world.milepost(&at(&server, &[&["submit", "bad.yaml"], json].concat())).must_exit(2).said();
            assert_eq!(there, here);
        }
    }
    world.milepost(&at(&server, &["status"])).must_exit(0).must_say(&["no plans yet"]);
    server.stop();
}

#[test]
fn other_content_is_refused_over_http_and_update_takes_it() {
    let world = World::new();
    let plan = |tasks: &str| format!("plan: p\nstages: [{{ name: a, uses: noop }}]\ntasks: [{tasks}]\n");
    let server = world.serve(&["--allow-commands"]);
    world.file("p.yaml", &plan("{ id: one }, { id: two }"));
    world.good(&at(&server, &["submit", "p.yaml", "--watch"]));
    world.good(&at(&server, &["submit", "p.yaml"])).must_say(&["was there already"]);
    world.file("p.yaml", &plan("{ id: two }, { id: three }"));
    let clash = world.milepost(&at(&server, &["submit", "p.yaml"])).must_exit(2);
    clash.must_say(&["exists with other content", "submit p.yaml --update"]);
    let updated = world.good(&at(&server, &["submit", "p.yaml", "--update"]));
    updated.must_say(&["1 task added, 1 task removed"]);
    server.stop();
}

#[test]
fn a_watcher_stays_while_a_killed_server_is_started_anew() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let server = world.serve(&["--allow-commands"]);
    world.good(&at(&server, &["submit", "p.yaml"]));
    let address = server.address.clone();
    let watch = world.start(&at(&server, &["watch", "p"]));
    watch.wait_to_say("plan p: 1 task");
    world.wait_for_file("started-t");
    server.kill();
    let again = world.serve_at(&address, &["--allow-commands"]);
    watch.wait_to_say("the connection broke, and stands again");
    world.file("go", "");
    watch.end().must_exit(0).must_say(&["t taken up again after 0 of 2 stages", "plan p COMPLETED"]);
    again.stop();
}

#[test]
fn a_plan_that_another_process_runs_is_watched_in_its_store() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t", "u"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    let (watch, lines) = (world.start(&["watch", "p"]), world.start(&["watch", "p", "--json"]));
    watch.wait_to_say("plan p: 2 tasks");
    world.good(&["pause", "p", "--reason", "lunch"]);
    watch.wait_to_say("plan p was paused by tester@");
    world.good(&["resume", "p"]);
    world.file("go", "");
    run.end().must_exit(0);
    watch.end().must_exit(0).must_say(&["plan p goes on", "t COMPLETED", "u COMPLETED", "plan p COMPLETED: 2 tasks"]);
    let lines = lines.end().must_exit(0).stdout;
    let kinds: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kinds.first().unwrap()["event"], "snapshot");
    assert_eq!(kinds.last().unwrap()["event"], "end");
    assert!(kinds.iter().any(|event| event["planStatus"] == "PAUSED"), "{lines}");
}
