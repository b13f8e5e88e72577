//! How many stages a second the store takes, through the trait and with nothing around it.
//! `cargo test -p milepost-store --test postgres_speed -- --ignored --nocapture`

#[path = "support/plans.rs"]
mod plans;
#[path = "support/postgres.rs"]
mod support;

use std::sync::Arc;
use std::time::Instant;

use milepost_store::{Membership, PostgresStore, Store};

use plans::{claim, finish, plan, submit};
use support::{Schema, is_there};

const IN_FLIGHT: usize = 512;
const STAGES: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a rule"]
async fn stages_per_second() {
    if !is_there("stages_per_second") {
        return;
    }
    let schema = Schema::new().await;
    let store = Arc::new(PostgresStore::open(&schema.url, Membership::node("n", "boot")).await.unwrap());
    let tasks = std::env::var("TASKS").ok().and_then(|tasks| tasks.parse().ok()).unwrap_or(5000);
    submit(&*store, plan("chain", tasks, STAGES)).await;
    let start = Instant::now();
    let (mut running, mut done) = (tokio::task::JoinSet::new(), 0);
    while done < tasks {
        if running.len() < IN_FLIGHT / 2 || done + running.len() == tasks {
            for held in claim(&*store, "n", IN_FLIGHT - running.len()).await.unwrap().tasks {
                let store = store.clone();
                running.spawn(async move { finish(&*store, &held).await.unwrap() });
            }
        }
        running.join_next().await.unwrap().unwrap();
        done += 1;
    }
    let (seconds, stats) = (start.elapsed().as_secs_f64(), store.stats());
    let batch = stats.commits as f64 / stats.batches as f64;
    eprintln!("chain: {:.0} stages/s, {batch:.0} a batch", (tasks * STAGES) as f64 / seconds);

    let singles: u32 = 2000;
    let start = Instant::now();
    let submits: Vec<_> = (0..singles)
        .map(|at| {
            let store = store.clone();
            tokio::spawn(async move { submit(&*store, plan(&format!("single-{at}"), 1, 1)).await })
        })
        .collect();
    for submit in submits {
        submit.await.unwrap();
    }
    eprintln!("submit: {:.0} plans/s", f64::from(singles) / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..singles.div_euclid(500) {
        for held in claim(&*store, "n", 500).await.unwrap().tasks {
            let store = store.clone();
            running.spawn(async move { finish(&*store, &held).await.unwrap() });
        }
    }
    while running.join_next().await.is_some() {}
    eprintln!("single, claim to end: {:.0} tasks/s", f64::from(singles) / start.elapsed().as_secs_f64());
    schema.remove().await;
}
