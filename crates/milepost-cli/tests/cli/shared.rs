//! The command line on stores that nodes share: PostgreSQL, MySQL and Redis, as far as they are there.

use rustix::process::Signal;
use serde_json::json;

use crate::moving::{everything, full};
use crate::places::places;
use crate::support::{Finished, Running, World, gated, wait_for};

/// Every command of a test on one store, named by the variable so that nobody else sees it.
struct On<'a> {
    world: &'a World,
    url: &'a str,
}

impl On<'_> {
    fn start(&self, args: &[&str]) -> Running {
        let mut command = self.world.command(args);
        command.env("MILEPOST_STORE", self.url);
        self.world.start_command(command)
    }

    fn milepost(&self, args: &[&str]) -> Finished {
        self.start(args).end()
    }

    fn status(&self, id: &str) -> String {
        let finished = self.milepost(&["status", id, "--json"]).must_exit(0);
        let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        answer["status"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_run_on_a_shared_store_obeys_verbs_from_another_process_without_a_socket() {
    for place in places() {
        let world = World::new();
        let on = On { world: &world, url: &place.url };
        world.file("p.yaml", &gated("p", &["a", "b"]));
        let run = on.start(&["run", "p.yaml", "-q"]);
        world.wait_for_file("started-a");
        world.wait_for_file("started-b");
        on.milepost(&["pause", "a"]).must_exit(0).must_say(&["a RUNNING, pauses when its running stage ends"]);
        on.milepost(&["cancel", "b"]).must_exit(0).must_say(&["b CANCELLED"]);
        world.file("go", "");
        wait_for("a to be paused", || (on.status("a") == "PAUSED").then_some(()));
        on.milepost(&["resume", "a"]).must_exit(0);
        run.end().must_exit(1);
        assert_eq!((on.status("a"), on.status("b")), ("COMPLETED".to_owned(), "CANCELLED".to_owned()));
        on.milepost(&["logs", "a"]).must_exit(0);
        on.milepost(&["pause", "nothing"]).must_exit(4);
        let left = std::fs::read_dir(world.path()).unwrap().flatten();
        let left: Vec<_> = left.filter(|file| file.file_name().to_string_lossy().contains(".db")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_update_to_fewer_tasks_at_once_lets_those_that_had_begun_end_and_the_rest_follow() {
    for place in places() {
        let world = World::new();
        let on = On { world: &world, url: &place.url };
        let plan = |most| format!("{}max_concurrency: {most}\n", gated("p", &["a", "b", "c", "d", "e"]));
        world.file("p.yaml", &plan(3));
        let run = on.start(&["run", "p.yaml", "-q", "--node", "n"]);
        for task in ["a", "b", "c"] {
            world.wait_for_file(&format!("started-{task}"));
        }
        run.signal(Signal::KILL);
        run.end();
        world.file("p.yaml", &plan(1));
        world.file("go", "");
        on.milepost(&["run", "p.yaml", "--update", "-q", "--node", "n"]).must_exit(0);
        assert_eq!(world.read("finished").lines().count(), 5);
    }
}

#[test]
fn two_runs_of_two_plans_share_a_store_and_each_runs_its_own() {
    for place in places() {
        let world = World::new();
        let on = On { world: &world, url: &place.url };
        world.file("p.yaml", &gated("p", &["a"]));
        world.file("q.yaml", "plan: q\nstages: [{ name: one, run: 'true' }]\ntasks: [{ id: c }]\n");
        let first = on.start(&["run", "p.yaml", "-q", "--node", "one"]);
        world.wait_for_file("started-a");
        on.milepost(&["run", "q.yaml", "-q", "--node", "two"]).must_exit(0);
        on.milepost(&["events", "c"]).must_exit(0).must_say(&["on two"]);
        world.file("go", "");
        first.end().must_exit(0);
    }
}

#[test]
fn everything_moves_to_a_shared_store_and_back() {
    for place in places() {
        let world = World::new();
        full(&world);
        let on = On { world: &world, url: &place.url };
        let before = everything(&world, "sqlite:milepost.db");
        let there =
            on.milepost(&["store", "migrate", "sqlite:milepost.db", "env:MILEPOST_STORE", "--json"]).must_exit(0);
        let back = on.milepost(&["store", "migrate", "env:MILEPOST_STORE", "sqlite:back.db", "--json"]).must_exit(0);
        let digest = |finished: &Finished| {
            let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
            assert_eq!(answer["plans"], json!(3));
            answer["digest"].clone()
        };
        assert_eq!(digest(&there), digest(&back));
        assert_eq!(everything(&world, "sqlite:back.db"), before);
    }
}

#[test]
fn a_node_on_a_postgres_that_answers_before_its_disk_does_says_what_may_be_lost() {
    for place in places().iter().filter(|place| place.url.starts_with("postgres")) {
        let world = World::new();
        let mark = if place.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{mark}options=-c%20synchronous_commit%3Doff", place.url);
        world.file("p.yaml", "plan: p\nstages: [{ name: one, run: 'true' }]\ntasks: [{ id: t }]\n");
        let run = On { world: &world, url: &url }.milepost(&["run", "p.yaml"]).must_exit(0);
        run.must_say(&["synchronous_commit = off", "can lose the last moments"]);
        let safe = On { world: &world, url: &place.url }.milepost(&["run", "p.yaml"]).must_exit(0);
        assert!(!safe.said().contains("synchronous_commit"), "{}", safe.said());
    }
}

#[test]
fn a_shared_store_with_a_live_node_is_not_moved() {
    for place in places() {
        let world = World::new();
        let on = On { world: &world, url: &place.url };
        world.file("p.yaml", &gated("p", &["a"]));
        let run = on.start(&["run", "p.yaml", "-q", "--node", "worker-1"]);
        world.wait_for_file("started-a");
        let refused = on.milepost(&["store", "migrate", "env:MILEPOST_STORE", "sqlite:new.db"]).must_exit(3);
        refused.must_say(&["is in use: 1 node is on it: worker-1"]);
        world.file("go", "");
        run.end().must_exit(0);
    }
}
