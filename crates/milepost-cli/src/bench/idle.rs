//! What a node costs its store when there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use milepost_store::Store;
use serde_json::json;

use super::figures::{Figures, Latencies};
use super::kind::registry;
use super::workloads::{Before, engine};

/// What the first moments ask for is the start's, and no part of being idle.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn idle(store: Arc<dyn Store>, length: Duration) -> Result<Figures> {
    let engine = engine(store.clone(), registry(), 512);
    tokio::time::sleep(SETTLES_WITHIN).await;
    let before = Before::now(&*store);
    tokio::time::sleep(length).await;
    let taken = before.taken(&*store);
    engine.stop().await;
    let per_second = |count: u64| count as f64 / taken.elapsed.as_secs_f64();
    let more = json!({
        "roundTripsPerSecond": per_second(taken.stats.round_trips),
        "transactionsPerSecond": per_second(taken.stats.batches),
    });
    Ok(Figures { workload: "idle", tasks: 0, stages: 0, in_flight: 0, taken, latencies: Latencies::new(), more })
}
