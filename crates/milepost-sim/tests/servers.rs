//! The same schedules on real servers, in real time, each node behind a proxy of its own that cuts, delays and loses.
//! `MILEPOST_SIM_ON_SERVERS=N` plays so many on each server, and `MILEPOST_SIM_FROM=SEED` begins elsewhere.

#![cfg(not(feature = "planted"))]

use milepost_sim::{Search, Server};

/// So many at once on one server.
const AT_ONCE: u64 = 8;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// Without a server it says so loudly, and where nobody would hear it fails.
fn no_schedule_breaks_a_rule_on(variable: &str) {
    let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{variable} is not set, and nothing may be skipped here");
        eprintln!("SKIPPED: {variable} is not set; `./dev/services up` starts a server and says how");
        return;
    };
    let server = Some(Server::parse(&url).expect("the address of a server"));
    let (from, count) = (number("MILEPOST_SIM_FROM", 1), number("MILEPOST_SIM_ON_SERVERS", AT_ONCE));
    let summary = Search { server, from, count, threads: AT_ONCE, failures: 3 }.run();
    assert!(summary.failures.is_empty(), "on {variable}:\n{summary}");
    eprintln!("{variable}: {summary}");
}

#[test]
fn whatever_becomes_of_nodes_and_network_no_schedule_breaks_a_rule_on_postgres() {
    no_schedule_breaks_a_rule_on("MILEPOST_TEST_POSTGRES");
}

#[test]
fn whatever_becomes_of_nodes_and_network_no_schedule_breaks_a_rule_on_mysql() {
    no_schedule_breaks_a_rule_on("MILEPOST_TEST_MYSQL");
}

#[test]
fn whatever_becomes_of_nodes_and_network_no_schedule_breaks_a_rule_on_redis() {
    no_schedule_breaks_a_rule_on("MILEPOST_TEST_REDIS");
}
