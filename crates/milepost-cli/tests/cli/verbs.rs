//! The operator's verbs, with and without a process that owns the store.

use crate::support::{World, failing, gated};

#[test]
fn a_running_plan_is_paused_resumed_and_watched_from_another_process() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t", "u"]));
    let mut run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    world.wait_for_file("started-u");
    world.good(&["pause", "p", "--reason", "lunch"]).must_say(&["p PAUSED"]);
    run.wait_to_say("plan p was paused by tester@");
    world.file("go", "");
    world.wait_for_status("t", "PAUSED");
    world.wait_for_status("u", "PAUSED");
    assert!(run.is_running() && !world.exists("finished"));
    world.good(&["status", "p"]).must_say(&["PAUSED", "lunch", "milepost resume t"]);
    world.good(&["resume", "p"]).must_say(&["p RUNNING"]);
    run.end().must_exit(0).must_say(&["plan p goes on", "plan p COMPLETED"]);
    assert!(world.events("t").contains(&"TASK_PAUSED".to_owned()));
}

#[test]
fn a_task_is_paused_at_its_stage_boundary_and_its_tenant_names_it() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]).replace("{ id: t }", "{ id: t, tenant: 'tenant one' }"));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    world.good(&["pause", "--tenant", "tenant one"]).must_say(&["t RUNNING, pauses when its running stage ends"]);
    world.file("go", "");
    world.wait_for_status("t", "PAUSED");
    assert_eq!(world.json(&["status", "--tenant", "tenant one"])["taskId"], "t");
    world.good(&["resume", "t"]);
    run.end().must_exit(0);
}

#[test]
fn a_cancelled_plan_ends_its_run_at_once_and_for_good() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t", "u"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-u");
    world.good(&["cancel", "p"]).must_say(&["p CANCELLED"]);
    run.end().must_exit(1).must_say(&["plan p CANCELLED", "2 cancelled"]);
    assert!(!world.exists("finished"));
    world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&["CANCELLED"]);
}

#[test]
fn with_no_owner_a_verb_is_done_all_the_same_and_says_what_carries_it_on() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["retry", "t"]).must_say(&["t PENDING", "milepost run FILE"]);
    world.good(&["pause", "p"]).must_say(&["p PAUSED"]);
    world.file("mended", "");
    world.good(&["run", "p.yaml"]).must_say(&["plan p COMPLETED"]);
    // From the checkpoint: the first stage ran once.
    assert_eq!(world.read("ran"), "first\nsecond\nsecond\n");
}

#[test]
fn retry_from_start_forgets_the_checkpoint() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    assert_eq!(world.json(&["checkpoint", "t"])["completedStageNames"], serde_json::json!(["first"]));
    world.good(&["retry", "t", "--from-start"]);
    world.file("mended", "");
    world.good(&["run", "p.yaml"]);
    assert_eq!(world.read("ran"), "first\nsecond\nfirst\nsecond\n");
    assert_eq!(world.json(&["checkpoint", "t"])["hasCheckpoint"], false);
}

#[test]
fn rollback_undoes_in_reverse_order_and_run_carries_it_out() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["rollback", "t"]).must_say(&["t ROLLING_BACK", "milepost run FILE"]);
    world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&["1 rolled back"]);
    assert_eq!(world.read("ran"), "first\nsecond\nundo-second\nundo-first\n");
    assert_eq!(world.status("t").as_deref(), Some("ROLLED_BACK"));
}

#[test]
fn reset_failed_counts_what_it_reset_and_waits_for_a_start() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    assert_eq!(world.json(&["reset-failed", "p"]), serde_json::json!({ "reset": 1 }));
    assert_eq!((world.status("p").as_deref(), world.status("t").as_deref()), (Some("READY"), Some("PENDING")));
    assert_eq!(world.json(&["reset-failed", "p"]), serde_json::json!({ "reset": 0 }));
    world.good(&["start", "p"]).must_say(&["p RUNNING"]);
    world.file("mended", "");
    world.good(&["run", "p.yaml"]);
}

#[test]
fn verbs_reach_an_owner_whose_directory_lies_deep() {
    let world = World::new();
    let deep = (0..3).map(|_| "d".repeat(60)).collect::<Vec<_>>().join("/");
    std::fs::create_dir_all(world.path().join(&deep)).unwrap();
    let store = format!("sqlite:{deep}/milepost.db");
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml", "--store", &store]);
    world.wait_for_file("started-t");
    world.good(&["cancel", "p", "--store", &store]);
    run.end().must_exit(1);
    assert!(!world.exists(&format!("{deep}/milepost.db.sock")));
}

#[test]
fn a_socket_that_a_killed_owner_left_behind_is_in_nobodys_way() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(rustix::process::Signal::KILL);
    run.end();
    assert!(world.exists("milepost.db.sock"));
    world.good(&["pause", "t"]).must_say(&["t PAUSED"]);
    world.file("go", "");
    world.good(&["run", "p.yaml"]);
    assert!(!world.exists("milepost.db.sock"));
}

#[test]
fn the_socket_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    let mode = std::fs::metadata(world.path().join("milepost.db.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.file("go", "");
    run.end().must_exit(0);
}

#[test]
fn many_verbs_at_once_are_all_answered() {
    let world = World::new();
    let tasks: Vec<String> = (1..=8).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = tasks.iter().map(String::as_str).collect();
    world.file("p.yaml", &gated("p", &names));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t8");
    let verbs: Vec<_> = names.iter().map(|task| world.start(&["cancel", task])).collect();
    verbs.into_iter().for_each(|verb| drop(verb.end().must_exit(0).must_say(&["CANCELLED"])));
    run.end().must_exit(1).must_say(&["8 cancelled"]);
}

#[test]
fn what_an_owner_does_not_understand_harms_neither_it_nor_others() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    let connect = || UnixStream::connect(world.path().join("milepost.db.sock")).unwrap();
    // Says nothing, and keeps nobody waiting.
    let _silent: Vec<UnixStream> = (0..10).map(|_| connect()).collect();
    for request in ["nonsense\n".to_owned(), "{\"v\": 99}\n".to_owned(), "x".repeat(100_000)] {
        let mut stream = connect();
        // The owner may hang up in the middle of what is too long.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = BufReader::new(stream).read_line(&mut answer);
        assert!(answer.is_empty() || answer.contains("\"answer\":\"failed\""), "{answer}");
    }
    world.good(&["cancel", "p"]);
    run.end().must_exit(1);
}
