//! Stores by their URLs: what is said when one cannot be opened, and what is never said.

use crate::support::World;

const SECRET: &str = "hunter2";

/// Nobody listens there; also a build without this backend has to answer as calmly.
const AWAY: [&str; 3] = [
    "postgres://ann:hunter2@127.0.0.1:1/jobs",
    "mysql://ann:hunter2@127.0.0.1:1/jobs",
    "redis://ann:hunter2@127.0.0.1:1/0",
];

#[test]
fn a_server_that_is_away_is_out_of_reach_for_every_command_and_its_password_stays_a_secret() {
    let world = World::new();
    world.file("p.yaml", "plan: p\nstages: [{ name: one, uses: noop }]\ntasks: [{ id: t }]\n");
    for url in AWAY {
        for command in [
            &["status"][..],
            &["run", "p.yaml"],
            &["serve", "--listen", "127.0.0.1:0"],
            &["pause", "p"],
            &["signal", "t", "go"],
            &["token", "list"],
            &["events", "t"],
            &["bench", "chain", "--tasks", "1"],
        ] {
            let finished = world.milepost(&[command, &["--store", url, "-v"]].concat()).must_exit(3);
            assert!(!finished.said().contains(SECRET), "{}", finished.said());
        }
        // By a variable nobody sees it at all, and by either way the store is named.
        let mut status = world.command(&["status", "--json"]);
        status.env("MILEPOST_STORE", url);
        let finished = world.start_command(status).end().must_exit(3).must_say(&["ann:***@127.0.0.1:1"]);
        assert!(!finished.said().contains(SECRET), "{}", finished.said());
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let world = World::new();
    let finished = world.milepost(&["status", "--store", AWAY[0]]).must_exit(3);
    finished.must_say(&["MILEPOST_STORE keeps it from them", "postgres://ann:***@127.0.0.1:1/jobs"]);
}

#[test]
fn a_store_in_the_settings_is_used_by_every_command() {
    let world = World::new();
    world.file("milepost.toml", "store = 'sqlite:elsewhere.db'\n");
    world.file("p.yaml", "plan: p\nstages: [{ name: one, uses: noop }]\ntasks: [{ id: t }]\n");
    world.good(&["run", "p.yaml", "-q"]);
    assert!(world.exists("elsewhere.db") && !world.exists("milepost.db"));
    world.good(&["status", "p"]).must_say(&["COMPLETED"]);
}

#[test]
fn a_take_over_is_measured_only_where_there_is_somebody_to_take_over() {
    let world = World::new();
    let refused = world.milepost(&["bench", "takeover"]).must_exit(2);
    refused.must_say(&["needs a store that several nodes share"]);
}
