//! A Redis dies, and a replica that lacks the last that happened takes its place: what it lacks runs again, and what it has
//! does not.

use std::process::{Child, Command, Stdio};

use milepost_core::task::PlanStatus;

use crate::ledger;
use crate::node::Node;
use crate::place::Backend;
use crate::support::{World, wait_for};

const TASKS: usize = 8;
const STAGES: usize = 6;

/// A Redis of its own, without a password.
struct Server {
    process: Child,
    port: String,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let folder = tempfile::tempdir().unwrap();
        let settings = ["--appendonly", "yes", "--save", "", "--bind", "127.0.0.1", "--port", &port, "--dir"];
        let mut command = Command::new("redis-server");
        command.args(settings).arg(folder.path()).args(more).stdout(Stdio::null());
        let server = Self { process: command.spawn().expect("redis-server is installed"), port, _folder: folder };
        wait_for("redis to answer", || (server.ask(&["PING"]) == "PONG\n").then_some(()));
        server
    }

    fn ask(&self, words: &[&str]) -> String {
        let answer = Command::new("redis-cli").args(["-p", &self.port]).args(words).output().unwrap();
        String::from_utf8(answer.stdout).unwrap()
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn follow(&self, other: &Self) {
        self.ask(&["REPLICAOF", "127.0.0.1", &other.port]);
        wait_for("it to follow the other", || {
            self.ask(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
        });
    }

    fn stand_alone(&self) {
        assert_eq!(self.ask(&["REPLICAOF", "NO", "ONE"]), "OK\n");
    }

    /// Whoever asks the other from now on asks this one.
    fn replace(&mut self, mut other: Self) {
        other.process.kill().unwrap();
        other.process.wait().unwrap();
        wait_for("the port to be free", || (self.ask(&["CONFIG", "SET", "port", &other.port]) == "OK\n").then_some(()));
        self.port.clone_from(&other.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_a_promoted_replica_lacks_runs_again_and_what_it_has_does_not() {
    let Some(mut place) = Backend::Redis.place("failover") else { return };
    let (primary, mut replica) = (Server::start(&[]), Server::start(&[]));
    replica.follow(&primary);
    place.url = primary.url();
    let world = World::new();
    world.file("milepost.toml", &format!("capacity = {}\n", TASKS / 2));
    let settings = format!("max_concurrency: {TASKS}\ndefaults: {{ retry: {{ max_attempts: 1 }} }}");
    world.file("p.yaml", &ledger::plan("p", TASKS, TASKS, STAGES, &settings, "sleep 0.5"));
    let nodes = ["one", "other"].map(|name| Node::start(&world, &place, &format!("{name}-of-failover"), &[]));
    world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);
    let begun = |task: usize| ledger::lines(&world, &format!("p-{task}")).values().sum::<usize>();
    wait_for("every task to be in its second stage", || (0..TASKS).all(|task| begun(task) > 1).then_some(()));
    replica.stand_alone();
    let then: Vec<usize> = (0..TASKS).map(begun).collect();
    let is_further = |task: usize| begun(task) > then[task] || then[task] == STAGES;
    wait_for("every task to be a stage further", || (0..TASKS).all(is_further).then_some(()));
    replica.replace(primary);
    let said = || nodes.iter().map(Node::said).collect::<Vec<_>>().join("\n");
    wait_for("the plan to end", || (ledger::status(&place, "p") == Some(PlanStatus::Completed)).then_some(()));
    for task in 0..TASKS {
        let lines = ledger::lines(&world, &format!("p-{task}"));
        assert_eq!(lines["s1"], 1, "the replica had that; the nodes say\n{}", said());
        assert_eq!(lines.len(), STAGES);
    }
    assert!((0..TASKS).map(begun).sum::<usize>() > TASKS * STAGES, "the replica lacked nothing");
    nodes.into_iter().for_each(Node::stop);
}

#[test]
fn a_node_does_not_start_on_a_redis_that_evicts_keys() {
    let Some(mut place) = Backend::Redis.place("evicts") else { return };
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    place.url = server.url();
    let world = World::new();
    let mut serve = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    serve.env("MILEPOST_STORE", &place.url);
    let refused = world.start_command(serve).end();
    let why = "redis evicts keys when its memory is full (maxmemory-policy allkeys-lru)";
    let how = "redis-cli CONFIG SET maxmemory-policy noeviction";
    assert!(refused.said().contains(why) && refused.said().contains(how), "{}", refused.said());
    refused.must_exit(3);
    assert_eq!(server.ask(&["DBSIZE"]), "0\n", "nothing was written");
}
