//! A client that comes back finds all that it missed, and nothing twice.

use std::sync::Arc;

use crate::support::{Event, World, states};

const CHAIN: &str = "
plan: p
stages:
  - { name: a, uses: gate }
  - { name: b, uses: gate }
  - { name: c, uses: gate }
tasks: [{ id: t }, { id: u }]";

#[tokio::test]
async fn a_dropped_connection_costs_nothing() {
    let world = World::new().await;
    let mut client = {
        world.submit(CHAIN).await;
        world.watch_after("plans/p", Some(0)).await
    };
    let mut seen = states(&client.states(2).await);
    drop(client);
    world.gate.let_go(3);
    client = world.watch_after("plans/p", seen.last().copied()).await;
    seen.extend(states(&client.states(2).await));
    drop(client);
    world.gate.open();
    world.ended("p").await;
    client = world.watch_after("plans/p", seen.last().copied()).await;
    let rest = client.rest().await;
    assert!(rest.iter().all(|event| event.name != "snapshot"), "what was missed comes instead");
    assert_eq!(rest.last().unwrap().name, "end");
    seen.extend(states(&rest));
    assert_eq!(seen, world.positions("p").await);
    world.close().await;
}

#[tokio::test]
async fn a_position_outlives_the_server_it_came_from() {
    let world = World::new().await;
    world.submit(CHAIN).await;
    let mut client = world.watch_after("plans/p", Some(0)).await;
    let mut seen = states(&client.states(3).await);
    world.gate.let_go(2);
    let store = Arc::new(world.store.reopen());
    // As after a crash: the old node finds that it can write no more.
    drop((client, world));
    let world = World::on(store).await;
    client = world.watch_after("plans/p", seen.last().copied()).await;
    world.gate.open();
    seen.extend(states(&client.rest().await));
    assert_eq!(seen, world.positions("p").await);
    world.close().await;
}

#[tokio::test]
async fn an_address_can_carry_the_position_for_clients_that_cannot_set_a_header() {
    let world = World::new().await;
    world.gate.open();
    world.submit(CHAIN).await;
    world.ended("p").await;
    let all = world.positions("p").await;
    let url = format!("http://{}/api/v1/plans/p/progress/stream?after={}", world.address(), all[2]);
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    let ids: Vec<i64> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    // The end has the position of the last change.
    assert_eq!(ids[..ids.len() - 1], all[3..]);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_no_client_misses_a_change_or_sees_one_twice() {
    let world = Arc::new(World::new().await);
    world.gate.open();
    let tasks: Vec<String> = (0..400).map(|i| format!("{{id: t{i}}}")).collect();
    let stages = "[{name: a, uses: noop}, {name: b, uses: gate}, {name: c, uses: noop}]";
    world.submit(&format!("{{plan: p, max_concurrency: 20, stages: {stages}, tasks: [{}]}}", tasks.join(","))).await;
    let watchers = (0..8_usize).map(|number| {
        let world = world.clone();
        tokio::spawn(async move {
            let mut seen: Vec<Event> = Vec::new();
            // Some never lose their connection, and some do again and again.
            let patience = if number == 0 { usize::MAX } else { 40 * number };
            loop {
                let last = seen.iter().rev().find_map(|event| event.id).unwrap_or(0);
                let mut client = world.watch_after("plans/p", Some(last)).await;
                for _ in 0..patience {
                    let Some(event) = client.next().await else { break };
                    seen.push(event);
                    if seen.last().is_some_and(|event| event.name == "end") {
                        return seen;
                    }
                }
            }
        })
    });
    let seen = futures::future::join_all(watchers).await;
    let all = world.positions("p").await;
    for seen in seen {
        assert_eq!(states(&seen.unwrap()), all);
    }
    Arc::into_inner(world).expect("the only one").close().await;
}
