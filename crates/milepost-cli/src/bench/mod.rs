mod kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use milepost_core::id::*;
use milepost_core::plan::*;
use milepost_core::retry::*;
use milepost_core::time::*;
use milepost_engine::*;
use milepost_store::*;

pub fn plan(id: &str, n: usize, stages: usize, failures: u64, conc: u32) -> Plan {
    let stages: Vec<StageDefinition> = (0..stages).map(|i| StageDefinition {
        name: StageName::parse(format!("s{i}")).unwrap(),
        action: Action { uses: "bench".into(), script: None, with: if failures>0 { serde_json::json!({"failures":failures}) } else { serde_json::Value::Null } },
        needs: if i == 0 { vec![] } else { vec![i - 1] },
        condition: None,
        retry: RetryPolicy { base: Millis::new(0), ..RetryPolicy::default() },
        timeout: Some(Millis::from_secs(300)),
        rollback: None,
    }).collect();
    Plan {
        definition: PlanDefinition { id: PlanId::parse(id).unwrap(), settings: Settings { max_concurrency: conc, ..Settings::default() }, stages: stages.into() },
        tasks: (0..n).map(|i| TaskDefinition { id: TaskId::parse(format!("{id}-{}", i + 1)).unwrap(), tenant: None, priority: 0, input: serde_json::Value::Null, matrix: Default::default(), stages: None }).collect(),
    }
}

pub async fn chain(tasks: usize, stages: usize, window: usize, failures: u64, mode: &str) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let store = Arc::new(SqliteStore_open(dir.path()));
    let mut options = Options::new("bench");
    options.capacity = window.max(16);
    let engine = Engine::new(store.clone(), kind::registry(), options);
    engine.start();
    let t0 = std::time::Instant::now();
    if mode == "one" {
        let p = Arc::new(plan("bench", tasks, stages, failures, window as u32));
        engine.submit(p.clone(), Start::AtOnce, Resubmit::Same).await.unwrap();
        let sub = t0.elapsed();
        let t0 = std::time::Instant::now();
        let row = engine.wait_for_plan(&p.definition.id, |r| r.status.is_ended()).await.unwrap();
        let s = t0.elapsed().as_secs_f64();
        println!("submit {:?} run {s:.3}s {:.0} stages/s {:.0} tasks/s {:?} {:?}", sub, (tasks * stages) as f64 / s, tasks as f64 / s, row.status, store.stats());
    } else {
        let next = Arc::new(AtomicUsize::new(0));
        let mut js = tokio::task::JoinSet::new();
        let template = Arc::new(plan("x", 1, stages, failures, 1));
        for _ in 0..window {
            let (engine, next, template) = (engine.clone(), next.clone(), template.clone());
            js.spawn(async move {
                let mut lat = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= tasks { break lat; }
                    let mut p = (*template).clone();
                    p.definition.id = PlanId::parse(format!("b{i}")).unwrap();
                    p.tasks[0].id = TaskId::parse(format!("b{i}-1")).unwrap();
                    let rx = engine.plan_changes(&p.definition.id);
                    let t = std::time::Instant::now();
                    engine.submit(Arc::new(p), Start::AtOnce, Resubmit::Same).await.unwrap();
                    rx.await.unwrap();
                    lat.push(t.elapsed().as_micros());
                }
            });
        }
        let mut all = Vec::new();
        while let Some(l) = js.join_next().await { all.extend(l.unwrap()); }
        let s = t0.elapsed().as_secs_f64();
        all.sort();
        println!("loop {s:.3}s {:.0} stages/s {:.0} tasks/s p50 {}us p99 {}us {:?}", (tasks * stages) as f64 / s, tasks as f64 / s, all[all.len()/2], all[all.len()*99/100], store.stats());
    }
    engine.stop().await;
}
#[allow(non_snake_case)]
fn SqliteStore_open(d: &std::path::Path) -> milepost_store::sqlite::SqliteStore { milepost_store::sqlite::SqliteStore::open(d.join("b.db")).unwrap() }
