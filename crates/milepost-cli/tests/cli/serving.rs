//! `serve` and `token`, as a person or a script meets them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PATIENCE, World, gated, wait_for};

#[test]
fn serve_says_where_it_listens_answers_and_leaves_on_sigterm_with_0() {
    let world = World::new();
    let served = world.serve(&["--json"]);
    assert_eq!((served.status("/healthz"), served.status("/readyz"), served.status("/metrics")), (200, 200, 200));
    assert!(world.exists("milepost.db.sock"));
    served.running.signal(Signal::TERM);
    let finished = served.running.end().must_exit(0);
    let said: Value = serde_json::from_str(finished.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(said["listening"], format!("http://{}", served.address));
    assert!(!world.exists("milepost.db.sock"));
}

#[test]
fn a_second_owner_is_told_the_pid_of_the_first() {
    let world = World::new();
    let served = world.serve(&[]);
    let pid = served.running.pid().to_string();
    world.milepost(&["serve", "--listen", "127.0.0.1:0"]).must_exit(3).must_say(&[&pid]);
    world.file("p.yaml", &gated("p", &["t"]));
    world.milepost(&["run", "p.yaml"]).must_exit(3).must_say(&[&pid]);
}

#[test]
fn what_a_killed_run_left_behind_goes_on_by_itself_and_can_be_paused_through_the_server() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(Signal::KILL);
    run.end();
    std::fs::remove_file(world.path().join("started-t")).unwrap();
    let served = world.serve(&["--node", "server"]);
    world.wait_for_file("started-t");
    world.good(&["pause", "t"]);
    world.file("go", "");
    world.wait_for_status("t", "PAUSED");
    world.good(&["resume", "t"]);
    world.wait_for_status("p", "COMPLETED");
    served.running.signal(Signal::INT);
    served.running.end().must_exit(0);
}

#[test]
fn running_stages_end_before_the_server_leaves_and_meanwhile_it_is_not_ready() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(Signal::KILL);
    run.end();
    std::fs::remove_file(world.path().join("started-t")).unwrap();
    let mut served = world.serve(&[]);
    world.wait_for_file("started-t");
    served.running.signal(Signal::TERM);
    served.running.wait_to_say("stopping after the running stages");
    assert_eq!((served.status("/readyz"), served.status("/healthz")), (503, 200));
    assert!(served.running.is_running());
    world.file("go", "");
    served.running.end().must_exit(0);
    assert!(!world.exists("finished"), "the next stage was started");
    assert_eq!(world.json(&["checkpoint", "t"])["completedStageNames"], serde_json::json!(["wait"]));
}

#[test]
fn a_stage_that_does_not_end_in_time_is_left_to_be_repeated() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(Signal::KILL);
    run.end();
    std::fs::remove_file(world.path().join("started-t")).unwrap();
    let served = world.serve(&["--drain-timeout", "50ms"]);
    world.wait_for_file("started-t");
    served.running.signal(Signal::TERM);
    served.running.end().must_exit(0).must_say(&["will be repeated"]);
    assert!(!world.exists("milepost.db.sock"));
    world.file("go", "");
    world.good(&["run", "p.yaml"]);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(Signal::KILL);
    run.end();
    std::fs::remove_file(world.path().join("started-t")).unwrap();
    let served = world.serve(&[]);
    world.wait_for_file("started-t");
    served.running.signal(Signal::INT);
    served.running.wait_to_say("press Ctrl-C again");
    served.running.signal(Signal::INT);
    served.running.end().must_exit(130);
    assert!(!world.exists("milepost.db.sock"));
}

#[test]
fn an_address_that_others_can_reach_needs_a_token_first() {
    let world = World::new();
    // An address for documentation, which no machine has: nothing ever listens there.
    let args = ["serve", "--listen", "192.0.2.1:0"];
    world.milepost(&args).must_exit(2).must_say(&["no token", "milepost token create ops --scope admin"]);
    let token = world.good(&["token", "create", "ops", "--scope", "admin"]).stdout;
    assert!(token.starts_with("mp_") && token.lines().count() == 1, "{token}");
    world.milepost(&args).must_exit(3).must_say(&["cannot listen on 192.0.2.1:0", "unencrypted"]);
    let listed = world.json(&["token", "list"]);
    world.good(&["token", "revoke", listed["items"][0]["id"].as_str().unwrap()]);
    world.milepost(&args).must_exit(2).must_say(&["no token"]);
}

#[test]
fn a_token_made_and_revoked_beside_a_running_server_counts_there() {
    let world = World::new();
    let served = world.serve(&["--require-token"]);
    assert_eq!(served.status("/metrics"), 401);
    let made = world.json(&["token", "create", "ops", "--scope", "read", "--expires", "30d"]);
    let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    assert_eq!(served.ask("GET", "/metrics", Some(secret)).0, 200);
    assert_eq!(served.ask("GET", "/api/v1/tokens", Some(secret)).0, 403);
    let listed = world.good(&["token", "list"]).must_say(&[id, "ops", "read"]);
    assert!(!listed.stdout.contains(secret.rsplit_once('_').unwrap().1));
    world.milepost(&["token", "create", "ops", "--scope", "read"]).must_exit(5).must_say(&["already"]);
    world.good(&["token", "revoke", id]).must_say(&["revoked"]);
    wait_for("the server to refuse it", || (served.ask("GET", "/metrics", Some(secret)).0 == 401).then_some(()));
    world.milepost(&["token", "revoke", "nobody"]).must_exit(4);
}

#[test]
fn what_serve_or_token_cannot_use_is_said_before_anything_starts() {
    let world = World::new();
    for (args, word) in [
        (vec!["serve", "--listen", "nonsense"], "nonsense"),
        (vec!["serve", "--tls-cert", "a.pem"], "--tls-key"),
        (vec!["serve", "--tls-cert", "a.pem", "--tls-key", "a.key"], "a.pem"),
        (vec!["serve", "--otlp", "somewhere"], "somewhere"),
        (vec!["serve", "--rate-limit", "0"], "rate-limit"),
        (vec!["token", "create", "ops"], "--scope"),
        (vec!["token", "create", "ops", "--scope", "root"], "root"),
    ] {
        world.milepost(&args).must_exit(2).must_say(&[word]);
    }
    world.file("milepost.toml", "[serve]\nlisten_on = 'x'\n");
    world.milepost(&["serve"]).must_exit(2).must_say(&["listen_on"]);
    assert!(!world.exists("milepost.db"));
    std::fs::remove_file(world.path().join("milepost.toml")).unwrap();
    world.milepost(&["token", "list"]).must_exit(3).must_say(&["no store", "milepost serve"]);
}

#[test]
fn the_configuration_speaks_for_flags_that_are_left_out_and_logs_may_be_json() {
    let world = World::new();
    world.file("milepost.toml", "[serve]\nrequire_token = true\nlog_format = 'json'\nlisten = 'nonsense'\n");
    let served = world.serve(&[]);
    assert_eq!(served.status("/metrics"), 401);
    served.running.signal(Signal::TERM);
    let finished = served.running.end().must_exit(0);
    let line = finished.stderr.lines().find(|line| line.contains("/metrics")).expect("a refusal is in the log");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["status"], &line["route"]), (&401.into(), &"/metrics".into()));
}

/// Takes one batch of traces, and answers that it has it.
fn collect(listener: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let read = stream.read(&mut bytes).unwrap();
        received.extend_from_slice(&bytes[..read]);
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
        let length = head.split_once("content-length: ").unwrap().1.lines().next().unwrap().parse::<usize>().unwrap();
        if received.len() >= end + 4 + length {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            return received;
        }
    }
}

#[test]
fn traces_go_to_a_collector_and_a_request_is_its_callers_child() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let served = world.serve(&["--otlp", &collector]);
    let collected = std::thread::spawn(move || collect(&listener));
    let mut stream = TcpStream::connect(&served.address).unwrap();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let head =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\ntraceparent: {parent}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    served.running.signal(Signal::TERM);
    served.running.end().must_exit(0);
    let batch = collected.join().unwrap();
    assert!(batch.starts_with(b"POST /v1/traces"));
    let holds = |part: &[u8]| batch.windows(part.len()).any(|window| window == part);
    assert!(holds(b"GET /metrics"));
    assert!(holds(&0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes()), "its trace is another");
}
