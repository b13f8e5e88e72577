//! Each exit code, and the words that go with it.

use crate::support::{World, failing};

fn world_with_a_failed_plan() -> World {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world
}

#[test]
fn bad_usage_is_2() {
    let world = World::new();
    world.milepost(&["nonsense"]).must_exit(2);
    world.milepost(&["pause"]).must_exit(2);
    world.milepost(&["status", "--store", "oracle:x"]).must_exit(2).must_say(&["oracle"]);
    world.milepost(&["status", "--store", "oracle://x"]).must_exit(2).must_say(&["there is no kind of store called"]);
    world.file("milepost.toml", "stroe = 'sqlite:a.db'\n");
    world.milepost(&["status"]).must_exit(2).must_say(&["stroe"]);
}

#[test]
fn a_bad_plan_is_2_and_every_error_is_shown_with_its_place() {
    let world = World::new();
    world.file("bad.yaml", "plan: a/b\nmax_concurrency: 0\nstages: [{ name: a, uses: nope }]\ntasks: [{ id: t }]\n");
    for command in ["run", "check"] {
        let said = world.milepost(&[command, "bad.yaml"]).must_exit(2);
        said.must_say(&["3 errors", "bad.yaml:1:7", "bad.yaml:2:18", "there is no stage kind `nope`"]);
    }
    let errors: serde_json::Value =
        serde_json::from_str(&world.milepost(&["check", "bad.yaml", "--json"]).must_exit(2).stdout).unwrap();
    assert_eq!((&errors[0]["line"], &errors[0]["column"], &errors[0]["path"]), (&1.into(), &7.into(), &"plan".into()));
    assert!(!world.exists("milepost.db"), "a bad plan made a store");
    world.milepost(&["run", "missing.yaml"]).must_exit(2).must_say(&["missing.yaml"]);
}

#[test]
fn a_missing_store_is_3_and_the_message_says_what_makes_one() {
    let world = World::new();
    for args in [vec!["status"], vec!["status", "p"], vec!["pause", "p"], vec!["events", "t"], vec!["logs", "t"]] {
        world.milepost(&args).must_exit(3).must_say(&["no store", "milepost run FILE"]);
    }
    assert!(!world.exists("milepost.db"));
    world.file("p.yaml", &failing("p"));
    world
        .milepost(&["run", "p.yaml", "--store", "sqlite:no/such/place.db"])
        .must_exit(3)
        .must_say(&["no/such/place.db"]);
    // What a run leaves that was killed before its first commit.
    world.file("empty.db", "");
    world.milepost(&["status", "--store", "sqlite:empty.db"]).must_exit(3).must_say(&["no store", "milepost run FILE"]);
    world.file("other.db", "this is no database, and certainly none of ours, however long one looks at it");
    world.milepost(&["status", "--store", "sqlite:other.db"]).must_exit(3).must_say(&["not a Milepost store"]);
}

#[test]
fn what_is_not_there_is_4() {
    let world = world_with_a_failed_plan();
    for args in [
        vec!["status", "nobody"],
        vec!["status", "../etc"],
        vec!["status", "--tenant", "nobody"],
        vec!["pause", "nobody"],
        vec!["retry", "--tenant", "nobody"],
        vec!["events", "nobody"],
        vec!["logs", "nobody"],
        vec!["logs", "t", "--stage", "third"],
        vec!["checkpoint", "nobody"],
    ] {
        world.milepost(&args).must_exit(4);
    }
    world.milepost(&["events", "p"]).must_exit(4).must_say(&["it is a plan", "milepost status p"]);
}

#[test]
fn what_the_state_forbids_is_5_and_the_message_says_why() {
    let world = world_with_a_failed_plan();
    world.milepost(&["resume", "t"]).must_exit(5).must_say(&["it is FAILED", "milepost retry t"]);
    world.milepost(&["pause", "p"]).must_exit(5).must_say(&["cannot pause plan p: it is FAILED"]);
    world.milepost(&["start", "t"]).must_exit(5);
    world.milepost(&["cancel", "--tenant", "tenant-7"]).must_exit(5);
}

#[test]
fn help_tells_the_exit_codes() {
    let world = World::new();
    world.good(&["--help"]).must_say(&["Exit codes:", "130", "Examples:"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let mut command = std::process::Command::new("sh");
    command.current_dir(world.path()).args(["-c", &format!("{} schema | head -c 1", env!("CARGO_BIN_EXE_milepost"))]);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_environment_and_the_configuration_name_the_store_under_the_flag() {
    let world = world_with_a_failed_plan();
    std::fs::rename(world.path().join("milepost.db"), world.path().join("moved.db")).unwrap();
    world.milepost(&["status", "p"]).must_exit(3);
    world.file("milepost.toml", "store = 'sqlite:moved.db'\n");
    world.good(&["status", "p"]);
    let mut command = world.command(&["status", "p"]);
    command.env("MILEPOST_STORE", "sqlite:nowhere.db");
    world.start_command(command).end().must_exit(3);
    let mut command = world.command(&["status", "p", "--store", "sqlite:moved.db"]);
    command.env("MILEPOST_STORE", "sqlite:nowhere.db");
    world.start_command(command).end().must_exit(0);
}
