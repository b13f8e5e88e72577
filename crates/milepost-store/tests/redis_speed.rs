//! How fast commits go through the trait. Not a test of anything: run it by name, with `--ignored --nocapture`.

mod redis_server;

use std::sync::Arc;
use std::time::Instant;

use milepost_core::plan::Plan;
use milepost_core::task::TaskStatus;
use milepost_store::{RedisStore, Store, StoredTask};
use redis_server::given::{claim, does, many, submit, success};
use redis_server::{Place, is_missing};
use tokio::sync::Semaphore;

const IN_FLIGHT: usize = 512;

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// What the server has worked for so far, whoever it had to wait for.
async fn server_seconds(place: &Place) -> f64 {
    let info: String = place.ask(redis::cmd("INFO").arg("cpu")).await;
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap();
    of("used_cpu_user_main_thread:") + of("used_cpu_sys_main_thread:")
}

fn chain(id: &str, tasks: usize, stages: usize) -> Plan {
    let mut plan = many(id, tasks);
    let first = plan.definition.stages[0].clone();
    let stage = |number: usize| {
        let mut stage = first.clone();
        stage.name = milepost_core::id::StageName::parse(format!("stage-{number}")).unwrap();
        stage.needs = number.checked_sub(1).into_iter().collect();
        stage
    };
    plan.definition.stages = (0..stages).map(stage).collect::<Vec<_>>().into();
    plan.definition.settings.max_concurrency = IN_FLIGHT as u32;
    plan
}

async fn work(store: &RedisStore, mut held: StoredTask, stages: usize) {
    for stage in 0..stages {
        held = does(store, &held, success(stage)).await;
    }
    assert_eq!(held.task.status(), TaskStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn stages_per_second_with_512_in_flight() {
    if is_missing() {
        return;
    }
    let (tasks, stages) = (from_environment("TASKS", 4000), from_environment("STAGES", 5));
    let place = Place::new();
    let store = Arc::new(place.node("a").await);
    let begun = Instant::now();
    let idle = server_seconds(&place).await;
    submit(&store, chain("p", tasks, stages)).await;
    let (submitted, submitting) = (begun.elapsed(), server_seconds(&place).await - idle);
    let free = Arc::new(Semaphore::new(IN_FLIGHT));
    let begun = Instant::now();
    let mut claimed = 0;
    let mut claiming = std::time::Duration::ZERO;
    while claimed < tasks {
        let first = free.clone().acquire_owned().await.unwrap();
        let mut permits = vec![first];
        while let Ok(permit) = free.clone().try_acquire_owned() {
            permits.push(permit);
        }
        let asked = Instant::now();
        let taken = claim(&store, permits.len()).await;
        claiming += asked.elapsed();
        claimed += taken.len();
        for held in taken {
            let (store, permit) = (store.clone(), permits.pop());
            tokio::spawn(async move {
                work(&store, held, stages).await;
                drop(permit);
            });
        }
    }
    let _all = free.acquire_many(IN_FLIGHT as u32).await.unwrap();
    let took = begun.elapsed();
    let stats = store.stats();
    let working = server_seconds(&place).await - idle - submitting;
    eprintln!("{tasks} tasks submitted in {submitted:?}: {:.1} µs of the server each", submitting * 1e6 / tasks as f64);
    eprintln!(
        "{:.0} stages/s: {:.1} µs of the server each, claims included; claims took {claiming:?} of {took:?}; {:.1} a group",
        (tasks * stages) as f64 / took.as_secs_f64(),
        working * 1e6 / (tasks * stages) as f64,
        stats.operations as f64 / stats.batches as f64,
    );
}
