//! How many units run at once, with some done before.

use milepost_core::task::PlanStatus;
use milepost_engine::Registry;

use crate::support::{Gate, World};

#[tokio::test(start_paused = true)]
async fn of_100_units_20_are_done_and_80_run_ten_at_once_and_each_that_ends_is_replaced_at_once() {
    let units: Vec<String> = (0..100).map(|i| format!("{{id: unit-{i}}}")).collect();
    let text = format!(
        "{{plan: p, max_concurrency: 10, stages: [{{name: copy, uses: gate}}], tasks: [{}]}}",
        units.join(", ")
    );
    let (world, before) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", before.kind()));
    node.submit(&text).await;
    before.let_go(20);
    before.came(30).await;
    assert_eq!(node.plan("p").await.counts.completed, 20);

    let (world, gate) = (world.crashed(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    gate.inside(10).await;
    for gone in 1..=70 {
        gate.let_go(1);
        gate.came(10 + gone).await;
        assert_eq!(gate.now_inside().len(), 10, "after {gone}");
        assert_eq!(node.plan("p").await.counts.running, 10);
    }
    gate.open();
    let row = node.ended("p").await;
    assert_eq!((row.status, row.counts.completed, row.counts.pending), (PlanStatus::Completed, 100, 0));
    let mut ran = gate.all();
    ran.sort();
    ran.dedup();
    assert_eq!((gate.all().len(), ran.len(), gate.peak()), (80, 80, 10), "each once, never more than ten");
}
