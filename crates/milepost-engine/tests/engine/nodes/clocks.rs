//! Nodes whose clocks differ: on a store that they share, the store's is the one that counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::PlanStatus;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::stage::{Outcome, StageCall};
use milepost_engine::{Clock, Registry};

use crate::support::{Cluster, DAWN, Journal, kind};

const TEN_MINUTES: Millis = Millis::from_secs(600);

#[tokio::test(start_paused = true)]
async fn a_node_goes_by_the_stores_clock_from_its_opening_on() {
    let cluster = Cluster::new();
    let registry = Registry::new().with("noop", Journal::default().kind());
    let fast = cluster.node_with("fast", &registry, |options| options.clock = Clock::manual(DAWN + TEN_MINUTES));
    let slow = cluster.node_with("slow", &registry, |options| options.clock = Clock::manual(DAWN - TEN_MINUTES));
    for member in [&fast, &slow] {
        let ahead = member.node.engine.clock().now().since(DAWN);
        assert!(ahead <= Millis::new(1) && member.node.engine.clock().now() >= DAWN, "by {ahead:?}");
    }
    fast.node.submit("{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: t}]}").await;
    assert_eq!(slow.node.ended("p").await.status, PlanStatus::Completed);
    assert!(slow.node.records("t").await.iter().all(|record| record.at().since(DAWN) < TEN_MINUTES));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_wrong_is_put_right_by_the_next_beat() {
    let (cluster, registry) = (Cluster::new(), Registry::new());
    let fast = cluster.node_with("fast", &registry, |options| {
        options.clock = Clock::manual_with_drift(DAWN, 100_000);
    });
    let slow = cluster.node_with("slow", &registry, |options| {
        options.clock = Clock::manual_with_drift(DAWN, -100_000);
    });
    let right = Clock::manual(DAWN);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for member in [&fast, &slow] {
            let (now, right) = (member.node.engine.clock().now(), right.now());
            let by = now.since(right).max(right.since(now));
            // A tenth of the time between two beats.
            assert!(by <= Millis::new(700), "{now} instead of {right}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_parked_fires_at_its_time_also_with_a_node_whose_clock_is_fast() {
    let cluster = Cluster::new();
    let (tried, right): (Arc<Mutex<Vec<Timestamp>>>, _) = (Arc::default(), Clock::manual(DAWN));
    let noted = tried.clone();
    let once = kind(move |call: StageCall| {
        noted.lock().unwrap().push(right.now());
        async move {
            if call.attempt == 2 {
                Outcome::success()
            } else {
                Outcome::Failure(Failure::retryable(ErrorType::Network, "no"))
            }
        }
    });
    let registry = Registry::new().with("once", once);
    let one = cluster.node("one", &registry);
    let _fast = cluster.node_with("fast", &registry, |options| {
        options.clock = Clock::manual_with_drift(DAWN + TEN_MINUTES, 50_000);
    });
    let retry = "{strategy: fixed, base: 10m, max: 1h, jitter: false}";
    one.node
        .submit(&format!("{{plan: p, stages: [{{name: s, uses: once, retry: {retry}}}], tasks: [{{id: t}}]}}"))
        .await;
    assert_eq!(one.node.ended("p").await.status, PlanStatus::Completed);
    let tried = tried.lock().unwrap().clone();
    let waited = tried[1].since(tried[0]);
    // Whoever wrote it down may have been ahead by what its clock gains from beat to beat.
    let (least, most) = (TEN_MINUTES, Millis::from_secs(601));
    assert!(waited >= least && waited <= most, "after {waited}: {tried:?}");
}
