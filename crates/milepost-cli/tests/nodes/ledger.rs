//! What must hold of a plan that several nodes ran, from its log and from what its stages did.

use std::collections::{BTreeMap, BTreeSet};

use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::{Event, PlanStatus, TaskStatus};
use milepost_store::{ChangeQuery, Changed, EventQuery, Membership, Position, Store, StoreUrl, TaskQuery, TasksOf};

use crate::place::{Place, block_on};
use crate::support::World;

/// A plan whose stages each add a line `STAGE ATTEMPT` to the file `lines-TASK`.
pub(crate) fn plan(id: &str, tasks: usize, tenants: usize, stages: usize, settings: &str, script: &str) -> String {
    let mut text = format!("plan: {id}\n{settings}\nstages:\n");
    for stage in 1..=stages {
        text.push_str(&format!(
            "  - name: s{stage}\n    run: |\n      echo \"$MILEPOST_STAGE $MILEPOST_ATTEMPT\" >> \"lines-$MILEPOST_TASK\"\n      {script}\n"
        ));
    }
    text.push_str("tasks:\n");
    for task in 0..tasks {
        text.push_str(&format!("  - {{ id: {id}-{task}, tenant: tenant-{} }}\n", task % tenants));
    }
    text
}

/// What was found in the end, for whoever wants to print it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Stages that a lost node had begun, and another began again.
    pub(crate) repeated: usize,
    pub(crate) interrupted: usize,
}

pub(crate) fn status(place: &Place, plan: &str) -> Option<PlanStatus> {
    block_on(async {
        let store = StoreUrl::parse(&place.url).unwrap().open(Membership::visitor()).await.ok()?;
        store.plan(&PlanId::parse(plan).unwrap()).await.ok()?.map(|row| row.status)
    })
}

/// Every task has ended well, and invariants 1 to 5 hold: from the order of commits, each log, and the stages' own lines.
pub(crate) fn check(world: &World, place: &Place, plan: &str, stages: usize, max_concurrency: usize) -> Found {
    block_on(async {
        let store = StoreUrl::parse(&place.url).unwrap().open(Membership::visitor()).await.unwrap();
        check_order(&*store, plan, max_concurrency).await;
        let mut found = Found::default();
        for task in tasks(&*store, plan).await {
            let stored = store.task(&task).await.unwrap().expect("a task that was accepted is there");
            assert_eq!(stored.task.status(), TaskStatus::Completed, "{task}");
            let query = EventQuery { task: task.clone(), after: 0, limit: usize::MAX };
            let log = store.events(query).await.unwrap();
            let sequences: Vec<u64> = log.iter().map(|event| event.sequence).collect();
            assert_eq!(sequences, (1..=log.len() as u64).collect::<Vec<_>>(), "the log of {task} has gaps");
            assert_eq!(stored.task.version(), log.len() as u64, "{task} does not follow from its log");
            let (mut starts, mut done) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
            for event in &log {
                match event.record.event() {
                    Event::StageStarted { stage, .. } => {
                        assert!(!done.contains(stage.as_str()), "{stage} of {task} began again after it was done");
                        *starts.entry(stage.as_str()).or_default() += 1;
                    }
                    Event::StageCompleted { stage, .. } => {
                        assert!(done.insert(stage.as_str()), "{stage} of {task} was done twice");
                    }
                    Event::TaskInterrupted { .. } => found.interrupted += 1,
                    _ => {}
                }
            }
            assert_eq!(done.len(), stages, "{task} has not done all of its stages");
            let lines = lines(world, task.as_str());
            for (stage, starts) in starts {
                let ran = lines.get(stage).copied().unwrap_or(0);
                assert!(ran >= 1, "{stage} of {task} is done and never ran");
                assert!(ran <= starts, "{stage} of {task} was started {starts} times and ran {ran} times");
                found.repeated += ran - 1;
            }
        }
        found
    })
}

/// How often each stage of a task ran.
pub(crate) fn lines(world: &World, task: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in world.read(&format!("lines-{task}")).lines() {
        *lines.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    lines
}

pub(crate) async fn tasks(store: &dyn Store, plan: &str) -> Vec<TaskId> {
    let (mut tasks, mut after) = (Vec::new(), None);
    loop {
        let of = TasksOf::Plan(PlanId::parse(plan).unwrap());
        let page = store.tasks(TaskQuery { of, statuses: Vec::new(), after, limit: 500 }).await.unwrap();
        tasks.extend(page.items.into_iter().map(|row| row.key.id));
        after = page.next;
        if after.is_none() {
            return tasks;
        }
    }
}

/// In the order of commits, no tenant ever has two tasks that run, nor the plan more than it may.
async fn check_order(store: &dyn Store, plan: &str, max_concurrency: usize) {
    let plan = PlanId::parse(plan).unwrap();
    let (mut position, mut running) = (Position(0), BTreeMap::new());
    let mut ended = BTreeSet::new();
    loop {
        let query = ChangeQuery { after: position, plan: Some(plan.clone()), limit: 1000 };
        let changes = store.changes(query).await.unwrap();
        for change in changes.items {
            assert!(change.position > position, "positions only grow");
            position = change.position;
            let Changed::Task { task, tenant, records, .. } = change.what else { continue };
            for record in records {
                match record.event() {
                    Event::TaskStarted { .. } => {
                        assert!(!ended.contains(&task), "{task} was started after its end");
                        let tenant = tenant.clone().expect("every task of these plans has a tenant");
                        let other = running.iter().find(|(other, of)| **of == tenant && **other != task);
                        assert_eq!(other, None, "{task} was started while another task of {tenant:?} ran");
                        running.insert(task.clone(), tenant);
                        assert!(running.len() <= max_concurrency, "{} tasks ran at once", running.len());
                    }
                    Event::TaskCompleted { .. } | Event::TaskFailed { .. } => {
                        running.remove(&task);
                        ended.insert(task.clone());
                    }
                    Event::TaskRetried { .. } => {
                        ended.remove(&task);
                    }
                    _ => {}
                }
            }
        }
        position = position.max(changes.upto);
        if !changes.more {
            return;
        }
    }
}

/// When everything happened that the logs of a plan's tasks have, in milliseconds.
pub(crate) fn times(place: &Place, plan: &str) -> Vec<i64> {
    block_on(async {
        let store = StoreUrl::parse(&place.url).unwrap().open(Membership::visitor()).await.unwrap();
        let mut times = Vec::new();
        for task in tasks(&*store, plan).await {
            let log = store.events(EventQuery { task, after: 0, limit: usize::MAX }).await.unwrap();
            times.extend(log.iter().map(|event| event.record.at().as_millis()));
        }
        times
    })
}
