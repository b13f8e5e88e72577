//! How many stages a second go through the trait with 512 tasks in flight; a figure, not a rule, so it is asked for by name:
//! `cargo test -p milepost-store --test mysql_speed -- --ignored --nocapture`

use std::sync::Arc;
use std::time::Instant;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Action, Plan, PlanDefinition, Settings, StageDefinition, TaskDefinition};
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{Command, StageEnded, StageResult, decide};
use milepost_core::time::Timestamp;
use milepost_store::{
    ClaimRequest, Commit, Holder, LeaseChange, Membership, MysqlStore, Resubmit, Start, Store, StoredTask, Submission,
};

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/mysql.rs"]
mod support;

use support::Database;

const IN_FLIGHT: usize = 512;
const TASKS: usize = 2048;
const STAGES: usize = 10;

fn now() -> Timestamp {
    Timestamp::from_millis(i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap())
}

fn chain() -> Plan {
    let stage = |index: usize| StageDefinition {
        name: StageName::parse(format!("s{index}")).unwrap(),
        action: Action { uses: "noop".to_owned(), script: None, with: serde_json::Value::Null },
        needs: if index == 0 { Vec::new() } else { vec![index - 1] },
        condition: None,
        retry: RetryPolicy::default(),
        timeout: None,
        rollback: None,
    };
    let task = |index: usize| TaskDefinition {
        id: TaskId::parse(format!("task-{index}")).unwrap(),
        tenant: None,
        priority: 0,
        input: serde_json::Value::Null,
        matrix: serde_json::Map::new(),
        stages: None,
    };
    let definition = PlanDefinition {
        id: PlanId::parse("chain").unwrap(),
        settings: Settings { max_concurrency: IN_FLIGHT as u32, ..Settings::default() },
        stages: (0..STAGES).map(stage).collect::<Vec<_>>().into(),
        workflow: None,
        parent: None,
    };
    Plan { definition, tasks: (0..TASKS).map(task).collect() }
}

async fn run(store: Arc<MysqlStore>, mut held: StoredTask) {
    for stage in 0..STAGES {
        let result = StageResult::Success(serde_json::Map::new());
        let ended = Command::StageEnded(StageEnded { stage, attempt: 1, result, stopping: false });
        let decision = decide(&held.task, ended, now()).unwrap();
        let task = Arc::new(decision.task);
        let commit = Commit {
            key: held.key.clone(),
            holder: Holder::Lease(held.epoch),
            expected: held.task.version(),
            events: decision.events.into(),
            task: task.clone(),
            lease: LeaseChange::Keep,
            plan: None,
            output: Vec::new(),
        };
        store.commit(commit).await.unwrap();
        held.task = (*task).clone();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is a measurement"]
async fn stages_a_second() {
    let Some(server) = support::server() else { return };
    let database = Database::create(&server).await;
    let store = Arc::new(MysqlStore::open(&database.url(), Membership::node("node", "boot")).await.unwrap());
    let start = Instant::now();
    let submission = Submission {
        plan: Arc::new(chain()),
        start: Start::AtOnce,
        resubmit: Resubmit::Same,
        request: None,
        now: now(),
    };
    store.submit(submission).await.unwrap();
    eprintln!("submitted {TASKS} tasks in {:?}", start.elapsed());
    let start = Instant::now();
    let (mut running, mut left) = (tokio::task::JoinSet::new(), TASKS);
    while left > 0 || !running.is_empty() {
        let free = IN_FLIGHT - running.len();
        if left > 0 && free >= IN_FLIGHT / 4 {
            let request = ClaimRequest {
                node: "node".into(),
                only: None,
                plans: true,
                workflows: Arc::default(),
                limit: free,
                now: now(),
            };
            let claimed = store.claim(request).await.unwrap();
            left -= claimed.tasks.len();
            for held in claimed.tasks {
                running.spawn(run(store.clone(), held));
            }
        }
        if let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
    }
    let (took, stats) = (start.elapsed(), store.stats());
    let stages = (TASKS * STAGES) as f64 / took.as_secs_f64();
    let group = stats.commits as f64 / stats.batches as f64;
    eprintln!("{stages:.0} stages/s, {} transactions, {group:.0} commits in each", stats.batches);
}
