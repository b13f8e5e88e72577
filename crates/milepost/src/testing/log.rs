//! The log of a run, in forms that tests compare.

use std::collections::HashSet;
use std::ops::Deref;

use milepost_core::task::EventView;
use serde_json::Value;

/// Every event of one run, the first one first.
#[derive(Debug, Clone, PartialEq)]
pub struct Log(pub(super) Vec<EventView>);

impl Log {
    /// How many events there are of a type: `log.count("RETRY_SCHEDULED")`.
    pub fn count(&self, event_type: &str) -> usize {
        self.iter().filter(|event| event.event_type == event_type).count()
    }

    /// One line for each event, without times: `STAGE_STARTED charge 1`, `RETRY_SCHEDULED charge 2 after 1375`.
    pub fn lines(&self) -> Vec<String> {
        self.iter().map(line).collect()
    }

    /// The delay of every retry, in milliseconds.
    pub fn backoffs(&self) -> Vec<u64> {
        self.iter().filter_map(|event| event.backoff_delay_ms).collect()
    }

    /// All that is the same however often the run was cut off: the log with everything that it says, but for times, node
    /// names, TASK_INTERRUPTED and repeated STAGE_STARTED.
    pub fn undisturbed(&self) -> Vec<String> {
        let (mut lines, mut started, mut may_start) = (Vec::new(), HashSet::new(), true);
        for event in self.iter() {
            let told = match event.event_type.as_str() {
                "TASK_INTERRUPTED" => false,
                // Said again of a task that slept: by another node, and only to give its name.
                "TASK_STARTED" => std::mem::replace(&mut may_start, false),
                "STAGE_STARTED" => {
                    started.insert((stage(event), event.payload["rollback"] == true, event.attempt_number))
                }
                "TASK_RESUMED" | "TASK_RETRIED" | "TASK_CONTINUED" => {
                    // Whoever begins anew has the task in hand already.
                    may_start |= event.event_type != "TASK_CONTINUED";
                    started.clear();
                    true
                }
                _ => true,
            };
            if told {
                lines.push(format!("{} {}", line(event), timeless(event)));
            }
        }
        lines
    }

    /// Panics if a stage was started again after it had completed, or if a number is missing.
    #[track_caller]
    pub fn check(&self) {
        let mut completed = HashSet::new();
        for (event, sequence) in self.iter().zip(1..) {
            assert_eq!(event.sequence, sequence, "the sequence has a gap: {self:#?}");
            match event.event_type.as_str() {
                "STAGE_COMPLETED" => assert!(completed.insert(stage(event)), "{} completed twice", stage(event)),
                "STAGE_STARTED" if event.payload["rollback"] != true => {
                    assert!(!completed.contains(stage(event)), "{} ran again", stage(event));
                }
                "TASK_CONTINUED" => completed.clear(),
                _ => {}
            }
        }
    }
}

impl Deref for Log {
    type Target = [EventView];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

fn stage(event: &EventView) -> &str {
    event.payload["stage"].as_str().unwrap_or_default()
}

fn line(event: &EventView) -> String {
    let mut line = event.event_type.clone();
    if !stage(event).is_empty() {
        line = format!("{line} {}", stage(event));
    }
    if let Some(attempt) = event.attempt_number {
        line = format!("{line} {attempt}");
    }
    if let Some(delay) = event.backoff_delay_ms {
        line = format!("{line} after {delay}");
    }
    if event.payload["rollback"] == true { format!("{line} undo") } else { line }
}

fn timeless(event: &EventView) -> Value {
    let mut payload = event.payload.clone();
    // When a sleep is over is a time, and so is what the clock said.
    let of_clock = payload["name"].as_str().is_some_and(|name| name.rsplit('.').any(|part| part == "now"));
    for time in ["/node", "/step/kind/sleep/until", "/step/kind/signal/deadline"] {
        payload.pointer_mut(time).map(Value::take);
    }
    if of_clock {
        payload.pointer_mut("/value").map(Value::take);
    }
    payload
}
