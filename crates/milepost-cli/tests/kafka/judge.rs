//! What must hold of a task that messages set off and several nodes ran, from its log and from what its stages wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::task::{Event, TaskStatus};
use milepost_store::{EventQuery, Membership, Store, StoreUrl, StoredEvent};

use crate::place::Place;
use crate::support::World;

pub(crate) async fn open(place: &Place) -> Arc<dyn Store> {
    StoreUrl::parse(&place.url).unwrap().open(Membership::visitor()).await.unwrap()
}

/// What a task has behind it.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) status: Option<TaskStatus>,
    pub(crate) completed: BTreeSet<String>,
    pub(crate) failed: BTreeSet<String>,
    /// Nodes that lost it in the middle.
    pub(crate) interrupted: usize,
    /// Stages that were begun, cut off with their node, and begun again.
    pub(crate) repeated: usize,
    /// How often each stage ran, by its own word.
    pub(crate) ran: BTreeMap<String, usize>,
}

pub(crate) async fn status(store: &dyn Store, task: &str) -> Option<TaskStatus> {
    let stored = store.task(&TaskId::parse(task).unwrap()).await.unwrap()?;
    Some(stored.task.status())
}

pub(crate) async fn is_running_on(store: &dyn Store, task: &str, node: &str) -> bool {
    let stored = store.task(&TaskId::parse(task).unwrap()).await.unwrap();
    stored.is_some_and(|stored| {
        stored.task.status() == TaskStatus::Running && stored.task.node().is_some_and(|on| **on == *node)
    })
}

/// Its log has no gaps and one end, nothing is begun after it was done, and what ran more often than it failed or was done was
/// cut off with its node.
pub(crate) async fn story(store: &dyn Store, world: &World, task: &str) -> Story {
    let id = TaskId::parse(task).unwrap();
    let stored = store.task(&id).await.unwrap().unwrap_or_else(|| panic!("{task} is not there"));
    let log = store.events(EventQuery { task: id, after: 0, limit: usize::MAX }).await.unwrap();
    let sequences: Vec<u64> = log.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=log.len() as u64).collect::<Vec<_>>(), "the log of {task} has gaps");
    let mut story = Story { status: Some(stored.task.status()), ..Story::default() };
    let mut attempts = BTreeMap::<String, Attempts>::new();
    let mut ends = 0;
    for event in &log {
        read(task, event, &mut story, &mut attempts);
        let is_end = matches!(event.record.event(), Event::TaskCompleted { .. } | Event::TaskFailed { .. });
        ends += usize::from(is_end);
    }
    assert_eq!(ends, 1, "{task} has ended {ends} times: {log:#?}");
    assert!(stored.task.message().is_some(), "{task} has forgotten what set it off");
    story.ran = lines(world, task);
    for (stage, Attempts { begun, ended }) in attempts {
        let ran = story.ran.get(&stage).copied().unwrap_or(0);
        assert!(ran <= begun, "{stage} of {task} was begun {begun} times and ran {ran} times");
        assert!(ran >= ended, "{stage} of {task} has ended {ended} times and ran {ran} times");
        let cut_off = begun - ended;
        assert!(cut_off <= story.interrupted, "{stage} of {task} was cut off {cut_off} times: {log:#?}");
        story.repeated += cut_off;
    }
    story
}

#[derive(Debug, Default)]
struct Attempts {
    begun: usize,
    ended: usize,
}

fn read(task: &str, event: &StoredEvent, story: &mut Story, attempts: &mut BTreeMap<String, Attempts>) {
    match event.record.event() {
        Event::StageStarted { stage, .. } => {
            assert!(!story.completed.contains(stage.as_str()), "{stage} of {task} began again after it was done");
            attempts.entry(stage.to_string()).or_default().begun += 1;
        }
        Event::StageCompleted { stage, .. } => {
            attempts.entry(stage.to_string()).or_default().ended += 1;
            assert!(story.completed.insert(stage.to_string()), "{stage} of {task} was done twice");
        }
        Event::StageFailed { stage, .. } | Event::RetryScheduled { stage, .. } => {
            attempts.entry(stage.to_string()).or_default().ended += 1;
            story.failed.insert(stage.to_string());
        }
        Event::TaskInterrupted { .. } => story.interrupted += 1,
        _ => {}
    }
}

/// How often each stage of a task ran, by its own word.
pub(crate) fn lines(world: &World, task: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in world.read(&format!("lines-{task}")).lines() {
        *lines.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    lines
}
