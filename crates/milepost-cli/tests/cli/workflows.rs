//! Plan files that name a workflow: checked and handed on here, and run by the program that has the function.

use crate::support::World;

const PLAN: &str =
    "plan: orders\nworkflow: { name: checkout, version: 2 }\ntasks:\n  - { id: order-17, input: { cents: 4200 } }\n";

#[test]
fn a_plan_with_a_workflow_is_checked_and_what_it_says_of_stages_is_shown_where_it_stands() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    world.good(&["check", "p.yaml"]).must_say(&["1 task", "each runs the workflow checkout (version 2)"]);
    let checked = world.json(&["check", "p.yaml"]);
    assert_eq!((&checked["workflow"]["name"], &checked["workflow"]["version"]), (&"checkout".into(), &2.into()));
    world.file("bad.yaml", &format!("{PLAN}stages: []\n"));
    world.milepost(&["check", "bad.yaml"]).must_exit(2).must_say(&["bad.yaml:5:1", "has no `stages`"]);
    let schema = world.json(&["schema"]);
    assert!(schema["properties"]["workflow"].is_object(), "{schema}");
}

#[test]
fn run_says_that_it_has_no_functions_and_what_to_do_and_keeps_nothing() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    let refused = world.milepost(&["run", "p.yaml"]).must_exit(2);
    refused.must_say(&["the workflow checkout (version 2)", "milepost --server URL submit p.yaml", "engine.run"]);
    assert!(!world.exists("milepost.db"));
}

#[test]
fn a_workflow_that_a_server_does_not_know_is_kept_and_explain_says_what_it_waits_for() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    let server = world.serve(&[]);
    world.good(&["submit", "p.yaml", "--server", &server.url]).must_say(&["orders"]);
    let said = world.json(&["explain", "order-17", "--server", &server.url]);
    assert_eq!(said["reason"], "NO_NODE_KNOWS", "{said}");
    server.stop();
}

#[test]
fn a_signal_sent_again_under_its_key_is_received_once_by_a_server_and_by_a_store() {
    let world = World::new();
    world.file("p.yaml", PLAN);
    let server = world.serve(&[]);
    world.good(&["submit", "p.yaml", "--server", &server.url]);
    let key = r#" "one" \ "#;
    let sends = |key: &str, payload: &str, more: &[&str]| {
        let mut words = vec!["signal", "order-17", "paid", payload, "--key", key];
        words.extend(more);
        world.milepost(&words)
    };
    let received = |more: &[&str]| {
        let mut words = vec!["events", "order-17"];
        words.extend(more);
        world.json(&words).to_string().matches("SIGNAL_RECEIVED").count()
    };
    let there = ["--server", server.url.as_str()];
    for _ in 0..2 {
        sends(key, "{\"cents\":1}", &there).must_exit(0);
    }
    assert_eq!(received(&there), 1);
    sends(key, "{\"cents\":2}", &there).must_exit(5).must_say(&["another signal under the key"]);
    sends("", "1", &there).must_exit(2).must_say(&["--key", "1 to 255 printable ASCII characters"]);
    server.stop();

    // A sender that was started anew may go by another name.
    for user in ["ann", "bob"] {
        let mut command = world.command(&["signal", "order-17", "paid", "1", "--key", "two"]);
        command.env("USER", user);
        world.start_command(command).end().must_exit(0);
    }
    sends("two", "2", &[]).must_exit(5).must_say(&["another signal under the key"]);
    assert_eq!(received(&[]), 2);
    // Without a key it is another one each time.
    for _ in 0..2 {
        world.good(&["signal", "order-17", "paid", "1"]);
    }
    assert_eq!(received(&[]), 4);
}
