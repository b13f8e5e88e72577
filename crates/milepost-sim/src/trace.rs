//! What happened, line by line, for a person to read; the same bytes for the same seed.

use std::fmt::Write;

use milepost_core::task::{Event, Record};

/// Off while schedules are only searched: words are what takes time.
#[derive(Debug, Default)]
pub struct Trace(Option<String>);

impl Trace {
    pub fn on() -> Self {
        Self(Some(String::new()))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn line(&mut self, ms: u64, who: &str, what: &str) {
        if let Some(text) = &mut self.0 {
            let _ = writeln!(text, "{:>8}.{:03} s  {who:<8} {what}", ms / 1000, ms % 1000);
        }
    }

    pub fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Events on one line.
pub(crate) fn words(records: &[Record]) -> String {
    records.iter().map(|record| event(record.event())).collect::<Vec<_>>().join(", ")
}

fn event(event: &Event) -> String {
    let undo = |rollback: &bool| if *rollback { " (undo)" } else { "" };
    let kind = event.kind();
    match event {
        Event::StageStarted { stage, attempt, rollback, .. } | Event::StageFailed { stage, attempt, rollback, .. } => {
            format!("{kind} {stage} {attempt}{}", undo(rollback))
        }
        Event::StageCompleted { stage, attempt, .. } => format!("{kind} {stage} {attempt}"),
        Event::RetryScheduled { stage, attempt, delay, rollback, .. } => {
            format!("{kind} {stage} {attempt} in {delay}{}", undo(rollback))
        }
        Event::TaskStarted { node } => format!("{kind} on {node}"),
        Event::TaskInterrupted { node, taken_by: Some(by), .. } => format!("{kind} on {node}, taken by {by}"),
        Event::StageSkipped { stage, .. } | Event::StageRolledBack { stage } => format!("{kind} {stage}"),
        Event::SignalReceived { name, .. } => format!("{kind} {name}"),
        Event::TaskRetried { from_checkpoint: false, .. } => format!("{kind} from the start"),
        other => other.kind().to_owned(),
    }
}
