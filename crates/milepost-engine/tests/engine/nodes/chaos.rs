//! Nodes that are cut off, let in again, stopped and replaced at random: every task ends, and is recorded once.

use std::time::Duration;

use milepost_core::task::PlanStatus;
use milepost_engine::stage::Outcome;
use milepost_engine::{OnStoreLoss, Registry};

use crate::support::{Answers, Cluster, Member, kind};

const TASKS: usize = 30;
const STAGES: [&str; 3] = ["a", "b", "c"];

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_the_nodes_every_task_ends_and_every_stage_is_recorded_once() {
    for seed in 1..=12 {
        for on_store_loss in [OnStoreLoss::Hold, OnStoreLoss::Continue] {
            a_run(seed, on_store_loss).await;
        }
    }
}

async fn a_run(seed: u64, on_store_loss: OnStoreLoss) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let cluster = Cluster::new();
    let slow = kind(|call| async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(700)) => {}
            () = call.cancel.cancelled() => {}
        }
        Outcome::success()
    });
    let registry = Registry::new().with("slow", slow);
    let start = |name: &str| {
        cluster.node_with(name, &registry, |options| {
            options.capacity = 4;
            options.on_store_loss = on_store_loss;
        })
    };
    let names = ["one", "two", "three"];
    let mut members: Vec<Member> = names.into_iter().map(start).collect();
    let watches = cluster.visitor();
    let stages = STAGES.map(|name| format!("{{name: {name}, uses: slow}}")).join(",");
    let tasks: Vec<String> = (0..TASKS).map(|i| format!("{{id: t{i}, tenant: x{}}}", i % 12)).collect();
    watches
        .node
        .submit(&format!("{{plan: p, max_concurrency: 9, stages: [{stages}], tasks: [{}]}}", tasks.join(",")))
        .await;
    for _ in 0..12 {
        let which = dice.roll(3) as usize;
        match dice.roll(5) {
            0 | 1 => members[which].cut(),
            2 => members[which].line.answer(Answers::Away),
            // Another process under the same name, while the old one may still believe that it is the node.
            3 => members[which] = start(names[which]),
            _ => members.iter().for_each(Member::mend),
        }
        tokio::time::sleep(Duration::from_millis(200 + dice.roll(12_000))).await;
    }
    members.iter().for_each(Member::mend);
    let row = watches.node.ended("p").await;
    assert_eq!((row.status, row.counts.completed), (PlanStatus::Completed, TASKS as u64), "seed {seed}");
    for i in 0..TASKS {
        let id = format!("t{i}");
        for stage in STAGES {
            let line = format!("STAGE_COMPLETED {stage} 1");
            assert_eq!(watches.node.count(&id, &line).await, 1, "seed {seed}, {id}: {:?}", watches.node.log(&id).await);
        }
        assert_eq!(watches.node.count(&id, "TASK_COMPLETED").await, 1, "seed {seed}");
    }
    for member in &members {
        member.node.stop().await;
    }
}
