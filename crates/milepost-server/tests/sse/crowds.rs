//! Many clients, and clients that do not read.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{World, bounded, states};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_of_one_plan_all_see_its_end() {
    // Each has two ends in this process.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.map_or(Some(8192), |most| Some(most.min(8192)));
    setrlimit(Resource::Nofile, limit).expect("as many files as are allowed");
    let world = Arc::new(World::new().await);
    world.submit("{plan: p, stages: [{name: a, uses: gate}], tasks: [{id: t}, {id: u}]}").await;
    let (joined, mut all_joined) = tokio::sync::mpsc::channel(1000);
    let clients: Vec<_> = (0..1000)
        .map(|_| {
            let (world, joined) = (world.clone(), joined.clone());
            tokio::spawn(async move {
                let mut client = world.watch("plans/p").await;
                let snapshot = client.next().await.expect("a snapshot").id.expect("a position");
                joined.send(()).await.expect("somebody counts");
                (snapshot, client.rest().await)
            })
        })
        .collect();
    for _ in 0..1000 {
        bounded("all clients' snapshots", all_joined.recv()).await.expect("a client");
    }
    world.gate.open();
    let all = world.clone();
    for client in clients {
        let (snapshot, events) = client.await.unwrap();
        assert_eq!(events.last().unwrap().name, "end");
        let wanted: Vec<i64> = all.positions("p").await.into_iter().filter(|position| *position > snapshot).collect();
        assert_eq!(states(&events), wanted);
    }
    drop(all);
    Arc::into_inner(world).expect("the only one").close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_up_nobody_and_finds_everything_when_it_does() {
    let world = World::new().await;
    let tasks: Vec<String> = (0..300).map(|i| format!("{{id: t{i}}}")).collect();
    let stages = "[{name: first, uses: gate}, {name: a, uses: large}]";
    world.submit(&format!("{{plan: p, max_concurrency: 300, stages: {stages}, tasks: [{}]}}", tasks.join(","))).await;
    let mut sleeper = TcpStream::connect(world.address()).await.unwrap();
    let request = "GET /api/v1/plans/p/progress/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 0\r\nConnection: close\r\n\r\n";
    sleeper.write_all(request.as_bytes()).await.unwrap();
    let mut reader = world.watch_after("plans/p", Some(0)).await;
    world.gate.open();
    // 30 MB, far more than any socket takes without its reader.
    world.ended("p").await;
    let all = world.positions("p").await;
    assert_eq!(states(&reader.rest().await), all, "the others are not kept waiting");
    let mut text = Vec::new();
    bounded("the rest of the stream", sleeper.read_to_end(&mut text)).await.unwrap();
    let text = String::from_utf8_lossy(&text);
    let ids: Vec<i64> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids[..ids.len() - 1], all);
    assert!(text.contains("event: end"));
    world.close().await;
}
