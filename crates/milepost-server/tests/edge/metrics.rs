//! What a scraper reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::id::PlanId;
use milepost_core::plan::{ParseOptions, parse};
use milepost_server::Settings;
use milepost_store::{Resubmit, Start};

use crate::support::World;

#[tokio::test]
async fn tasks_stages_requests_and_the_store_are_counted_without_ids() {
    let world = World::new(Settings::default()).await;
    let text = "plan: secret-plan\nstages: [{ name: secret-stage, uses: noop }]\n\
                tasks: [{ id: secret-task, tenant: secret-tenant }, { id: another }]\n";
    let id = PlanId::parse("unused").unwrap();
    let check = |_: &str, _: &serde_json::Value| Ok(());
    let options = ParseOptions { check_action: &check, ..ParseOptions::new("plan.yaml", id) };
    let plan = Arc::new(parse(text.as_bytes(), &options).unwrap());
    let id = plan.definition.id.clone();
    world.engine.start();
    world.engine.submit(plan, Start::AtOnce, Resubmit::Same).await.unwrap();
    world.engine.wait_for_plan(&id, |row| row.status.is_ended()).await.unwrap();
    world.get("/api/v1/tokens").send().await.unwrap();
    let response = world.get("/metrics").send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = response.text().await.unwrap();
    for line in [
        "milepost_tasks_started_total 2",
        "milepost_tasks_completed_total 2",
        "milepost_tasks_failed_total 0",
        "milepost_tasks_in_hand 0",
        r#"milepost_stage_duration_seconds_count{outcome="completed"} 2"#,
        "milepost_task_duration_seconds_count 2",
        r#"milepost_http_requests_total{method="GET",route="/api/v1/tokens",status="200"} 1"#,
        "milepost_sse_clients 0",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    for name in ["milepost_build_info{", "process_start_time_seconds ", "process_resident_memory_bytes "] {
        assert!(text.contains(name), "no `{name}` in\n{text}");
    }
    assert!(!text.contains("secret"), "an id is a label in\n{text}");
    let twice: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(twice.len(), twice.iter().collect::<BTreeSet<_>>().len());
}
