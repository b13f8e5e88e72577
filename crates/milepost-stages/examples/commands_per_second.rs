//! How many `run: true` stages a second this machine does, next to bare starts of the same shell.
//!
//! `cargo run --release -p milepost-stages --example commands_per_second [COUNT] [AT_ONCE]`

use std::sync::Arc;
use std::time::Instant;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::retry::RetryPolicy;
use milepost_engine::stage::{Outcome, Progress, ReportSink, Reporter, StageCall, StageKind};
use milepost_stages::RunKind;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

struct Ignored;

impl ReportSink for Ignored {
    fn progress(&self, _: Progress) {}
    fn output(&self, _: &[u8]) {}
}

fn call() -> StageCall {
    StageCall {
        plan: PlanId::parse("plan").expect("a valid id"),
        task: TaskId::parse("task").expect("a valid id"),
        tenant: None,
        stage: StageName::parse("stage").expect("a valid name"),
        attempt: 1,
        origin: "origin".into(),
        run: 1,
        fence: 7,
        rollback: false,
        input: Arc::new(Value::Null),
        file: None,
        script: Some("true".into()),
        with: Value::Null,
        retry: RetryPolicy::default(),
        timeout: None,
        cancel: CancellationToken::new(),
        reporter: Reporter::new(Arc::new(Ignored)),
    }
}

async fn bare() {
    let mut shell = tokio::process::Command::new("/bin/sh");
    let status = shell.args(["-c", "true"]).stdin(std::process::Stdio::null()).status().await;
    assert!(status.is_ok_and(|status| status.success()));
}

async fn stage() {
    assert_eq!(RunKind::new().run(call()).await, Outcome::success());
}

async fn measure<F: Future<Output = ()> + Send + 'static>(
    name: &str,
    count: usize,
    at_once: usize,
    one: impl Fn() -> F + Copy + Send + Sync + 'static,
) {
    let started = Instant::now();
    let lanes: Vec<_> = (0..at_once)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..count / at_once {
                    one().await;
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.expect("a lane ends without a panic");
    }
    let rate = (count / at_once * at_once) as f64 / started.elapsed().as_secs_f64();
    eprintln!("{name:<12} {rate:>8.0} a second, {at_once} at once");
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (count, at_once) = (arguments.next().unwrap_or(2000), arguments.next().unwrap_or(1));
    for _ in 0..3 {
        measure("bare shell", count, at_once, bare).await;
        measure("run: true", count, at_once, stage).await;
    }
}
