//! The messages as bytes. Each is written out once, however many clients read it.

use bytes::Bytes;
use milepost_core::api::{EndMessage, PlanProgress, ProgressMessage, Snapshot, StateMessage, TaskProgress};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::EventView;
use milepost_store::{Change, Changed, Position};
use serde::Serialize;

use crate::problem::Problem;

/// How long a client waits before it connects again.
const RETRY_MS: u32 = 2000;

/// What a client asked to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) plan: PlanId,
    /// None: the whole plan.
    pub(crate) task: Option<TaskId>,
}

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Audience {
    /// Who watches the plan.
    Plan,
    /// Who watches the plan, and who watches this task.
    Task(TaskId),
    /// Only who watches this task.
    TaskOnly(TaskId),
    Everyone,
}

impl Audience {
    pub(super) fn has(&self, watched: Option<&TaskId>) -> bool {
        match (self, watched) {
            (Audience::Everyone, _) | (Audience::Plan | Audience::Task(_), None) => true,
            (Audience::Task(task) | Audience::TaskOnly(task), Some(watched)) => task == watched,
            (Audience::Plan, Some(_)) | (Audience::TaskOnly(_), None) => false,
        }
    }
}

/// Messages about one plan, one after another in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    audience: Audience,
    /// None: progress, which has no place in the store's order.
    position: Option<Position>,
    /// Nothing comes after it for its audience.
    ends: bool,
    /// Where in the text it ends.
    until: usize,
}

/// A batch that is ready to be read by many.
#[derive(Debug)]
pub(super) struct Sealed {
    bytes: Bytes,
    entries: Vec<Entry>,
}

/// What of a batch is for one client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extract {
    pub(super) pieces: Vec<Bytes>,
    pub(super) last: Position,
    pub(super) ends: bool,
}

impl Batch {
    pub(super) fn state(&mut self, change: &Change) {
        let (message, audience) = match &change.what {
            Changed::Plan { status, by, at: _ } => {
                let message = StateMessage {
                    plan_id: change.plan.clone(),
                    plan_status: Some(*status),
                    by: by.clone(),
                    task_id: None,
                    events: Vec::new(),
                };
                (message, Audience::Plan)
            }
            Changed::Task { task, tenant: _, sequence, records } => {
                let numbered = (*sequence..).zip(records);
                let message = StateMessage {
                    plan_id: change.plan.clone(),
                    plan_status: None,
                    by: None,
                    task_id: Some(task.clone()),
                    events: numbered
                        .map(|(sequence, record)| EventView::new(&change.plan, task, sequence, record))
                        .collect(),
                };
                (message, Audience::Task(task.clone()))
            }
        };
        self.push("state", &message, audience, Some(change.position), false);
    }

    pub(super) fn task_progress(&mut self, progress: TaskProgress) {
        let audience = Audience::Task(progress.task_id.clone());
        let plan_id = progress.plan_id.clone();
        let message = ProgressMessage { task: Some(progress), ..ProgressMessage::of(plan_id) };
        self.push("progress", &message, audience, None, false);
    }

    pub(super) fn plan_progress(&mut self, progress: &PlanProgress) {
        let message = ProgressMessage::from(progress);
        self.push("progress", &message, Audience::Plan, None, false);
    }

    pub(super) fn trouble(&mut self, problem: &Problem) {
        self.push("error", &problem.view(), Audience::Everyone, None, false);
    }

    pub(super) fn end(&mut self, message: &EndMessage, position: Position) {
        let audience = message.task_id.clone().map_or(Audience::Plan, Audience::TaskOnly);
        self.push("end", message, audience, Some(position), true);
    }

    fn push(&mut self, event: &str, data: &impl Serialize, audience: Audience, position: Option<Position>, ends: bool) {
        write(&mut self.text, event, position, data);
        self.entries.push(Entry { audience, position, ends, until: self.text.len() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn sealed(self) -> Sealed {
        Sealed { bytes: self.text.into(), entries: self.entries }
    }
}

impl Sealed {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn concerns(&self, watched: Option<&TaskId>) -> bool {
        self.entries.iter().any(|entry| entry.audience.has(watched))
    }

    /// What is for this client and comes after `last`. Neighbours stay in one piece, and nothing is copied.
    pub(super) fn extract(&self, watched: Option<&TaskId>, last: Position) -> Extract {
        let mut extract = Extract { pieces: Vec::new(), last, ends: false };
        let (mut start, mut at) = (0, 0);
        for entry in &self.entries {
            // An end has the position of what it follows.
            let is_new = entry.ends || entry.position.is_none_or(|position| position > extract.last);
            if !(entry.audience.has(watched) && is_new) {
                self.cut(start..at, &mut extract.pieces);
                start = entry.until;
            }
            at = entry.until;
            if start < at {
                extract.last = entry.position.map_or(extract.last, |position| position.max(extract.last));
                extract.ends |= entry.ends;
            }
        }
        self.cut(start..at, &mut extract.pieces);
        extract
    }

    fn cut(&self, range: std::ops::Range<usize>, pieces: &mut Vec<Bytes>) {
        if !range.is_empty() {
            pieces.push(self.bytes.slice(range));
        }
    }
}

/// The first words on every stream.
pub(super) fn opening() -> Bytes {
    format!("retry: {RETRY_MS}\n\n").into()
}

pub(super) fn snapshot(snapshot: &Snapshot, position: Position) -> Bytes {
    let mut text = Vec::new();
    write(&mut text, "snapshot", Some(position), snapshot);
    text.into()
}

/// Keeps proxies from thinking that nobody is there.
pub(super) fn comment(words: &'static str) -> Bytes {
    Bytes::from_static(words.as_bytes())
}

/// The data is on one line, as compact JSON always is.
fn write(text: &mut Vec<u8>, event: &str, position: Option<Position>, data: &impl Serialize) {
    if let Some(Position(position)) = position {
        text.extend_from_slice(format!("id: {position}\n").as_bytes());
    }
    text.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *text, data).expect("our own messages are JSON");
    text.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use milepost_core::task::{Event, PlanStatus, Record};
    use milepost_core::time::Timestamp;

    use super::*;

    fn plan() -> PlanId {
        PlanId::parse("p").unwrap()
    }

    fn task(id: &str) -> TaskId {
        TaskId::parse(id).unwrap()
    }

    fn change(position: i64, of: &str) -> Change {
        let records = vec![Record::new(Timestamp::from_millis(0), Event::TaskCompleted { result: None })];
        let what = Changed::Task { task: task(of), tenant: None, sequence: 7, records };
        Change { position: Position(position), plan: plan(), what }
    }

    fn batch() -> Sealed {
        let mut batch = Batch::default();
        batch.state(&change(1, "a"));
        batch.state(&change(2, "b"));
        batch.state(&change(3, "a"));
        let what = Changed::Plan { status: PlanStatus::Completed, by: None, at: Timestamp::from_millis(0) };
        batch.state(&Change { position: Position(4), plan: plan(), what });
        let end =
            EndMessage { plan_id: plan(), plan_status: Some(PlanStatus::Completed), task_id: None, task_status: None };
        batch.end(&end, Position(4));
        batch.sealed()
    }

    fn ids(extract: &Extract) -> Vec<String> {
        let text: Vec<u8> = extract.pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        let text = String::from_utf8(text).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
    }

    #[test]
    fn who_watches_the_plan_gets_all_that_is_new_in_one_piece() {
        let extract = batch().extract(None, Position(1));
        assert_eq!((ids(&extract), extract.pieces.len()), (vec!["2".into(), "3".into(), "4".into(), "4".into()], 1));
        assert!(extract.ends && extract.last == Position(4));
    }

    #[test]
    fn who_watches_a_task_gets_what_is_about_it_and_not_the_plans_end() {
        let extract = batch().extract(Some(&task("a")), Position(0));
        assert_eq!(ids(&extract), ["1", "3"]);
        assert!(!extract.ends && extract.last == Position(3));
        assert!(batch().extract(Some(&task("c")), Position(0)).pieces.is_empty());
    }

    #[test]
    fn a_message_is_an_event_as_the_standard_has_it() {
        let mut batch = Batch::default();
        batch.state(&change(1, "a"));
        let extract = batch.sealed().extract(None, Position(0));
        let text = String::from_utf8(extract.pieces[0].to_vec()).unwrap();
        assert!(
            text.starts_with("id: 1\nevent: state\ndata: {\"planId\":\"p\",\"taskId\":\"a\",\"events\":[{"),
            "{text}"
        );
        assert!(text.ends_with("}]}\n\n") && text.lines().count() == 4, "{text}");
    }
}
