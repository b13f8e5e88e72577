//! Remembers what a store said after each crash, and holds it to that.

use std::collections::BTreeMap;

use milepost_store::StoredEvent;

use crate::history::{History, TaskHistory};
use crate::support::World;

/// What was seen so far of a plan whose stages each write a line `stage attempt …` into `lines-TASK`.
#[derive(Default)]
pub(crate) struct Witness {
    /// Lines of each completed stage when it was first seen as completed.
    completed: BTreeMap<(String, String), usize>,
    logs: BTreeMap<String, Vec<StoredEvent>>,
}

impl Witness {
    /// Compares with all earlier looks: logs only grow, and a stage once completed has written its last line.
    pub(crate) fn look(&mut self, world: &World, history: &History) {
        for (id, task) in &history.tasks {
            let before = self.logs.insert(id.clone(), task.events.clone()).unwrap_or_default();
            assert!(task.events.starts_with(&before), "the log of {id} lost what it had");
            let lines = lines(world, id);
            for stage in task.done() {
                let written = lines.get(stage).copied().unwrap_or(0);
                let key = (id.clone(), stage.to_owned());
                let when_completed = *self.completed.entry(key).or_insert(written);
                assert!(written > 0, "{stage} of {id} is completed, but never ran");
                assert_eq!(written, when_completed, "{stage} of {id} ran again after it was completed");
            }
        }
        let seen_before = self.completed.keys();
        for (id, stage) in seen_before {
            let still = history.tasks.get(id).is_some_and(|task| task.done().any(|done| done == stage));
            assert!(still, "{stage} of {id} was completed, and is not any more");
        }
    }

    pub(crate) fn completed(&self) -> usize {
        self.completed.len()
    }
}

/// The lines that a stage wrote beyond its first; each must have a start in the log that a crash cut off.
pub(crate) fn repeats(world: &World, task: &TaskHistory, stage: &str) -> usize {
    let id = task.row.key.id.as_str();
    let written = lines(world, id).get(stage).copied().unwrap_or(0);
    let starts = task.starts(stage).len();
    assert!(written >= 1, "{stage} of {id} never ran");
    assert!(written <= starts, "{stage} of {id} was started {starts} times and ran {written} times");
    written - 1
}

fn lines(world: &World, task: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in world.read(&format!("lines-{task}")).lines() {
        *lines.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    lines
}
