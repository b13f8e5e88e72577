//! Many messages of every kind, shuffled, and what has to become of each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::files::Files;
use crate::seed::Dice;

/// What has to become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Completes,
    /// After its second stage has failed once.
    CompletesOnSecondTry,
    /// In its second stage, for good.
    Fails,
    /// Before any stage.
    Expires,
}

pub(crate) struct Mix {
    /// In the order in which they are published, with their keys.
    pub(crate) records: Vec<(Option<String>, Vec<u8>)>,
    pub(crate) tasks: BTreeMap<String, Fate>,
    /// The messages of which there has to be a dead letter, as they were.
    pub(crate) dead_letters: BTreeSet<String>,
    pub(crate) garbage: usize,
}

/// Writes a line `STAGE ATTEMPT`, and has to find its own file.
const WITNESS: &str = r#"echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK"
      grep -qx "the file of /$MILEPOST_TASK" "$MILEPOST_FILE""#;

/// Stages that all write a line and look at their file; `middle` is what else the second one does.
pub(crate) fn chain(stages: usize, middle: &str) -> String {
    let mut text = String::from("stages:\n");
    for stage in 1..=stages {
        let more = if stage == 2 { middle } else { "" };
        text.push_str(&format!("  - name: s{stage}\n    run: |\n      {WITNESS} || exit 9\n      {more}\n"));
        text.push_str("    retry: { max_attempts: 5, base: 20ms, fatal_exit_codes: [9] }\n");
    }
    text
}

/// What the configuration calls them.
pub(crate) fn chains() -> [(&'static str, String); 3] {
    [
        ("good", chain(3, "sleep 0.05")),
        ("second-try", chain(3, r#"test "$MILEPOST_ATTEMPT" -ge 2"#)),
        ("broken", chain(3, "exit 9")),
    ]
}

impl Mix {
    /// So many tasks, a tenth of whose messages comes twice, and some messages that are of no use to anybody.
    pub(crate) fn new(tasks: usize, files: &Files, dice: &mut Dice) -> Self {
        let mut mix = Self { records: Vec::new(), tasks: BTreeMap::new(), dead_letters: BTreeSet::new(), garbage: 0 };
        for number in 0..tasks {
            mix.task(number, files);
        }
        shuffle(&mut mix.records, dice);
        let again: Vec<_> = mix.records.iter().step_by(10).cloned().collect();
        for record in again {
            let place = dice.below(mix.records.len() as u64 + 1);
            mix.records.insert(usize::try_from(place).unwrap(), record);
        }
        for number in 0..tasks / 20 {
            let (key, value) = mix.useless(number);
            let place = dice.below(mix.records.len() as u64 + 1);
            mix.records.insert(usize::try_from(place).unwrap(), (key, value));
        }
        mix
    }

    fn task(&mut self, number: usize, files: &Files) {
        let task = format!("upload-{number}");
        let (fate, chain) = match number % 20 {
            0 => (Fate::Expires, "good"),
            1 => (Fate::Fails, "broken"),
            2 => (Fate::CompletesOnSecondTry, "second-try"),
            _ => (Fate::Completes, "good"),
        };
        let mut message = json!({
            "messageId": format!("message-{number}"),
            "taskId": task,
            "sourceNode": "uploads-1",
            "chain": chain,
            "file": { "uri": files.uri(&task), "name": format!("{task}.txt") },
        });
        if fate == Fate::Expires {
            message["deadline"] = "2020-02-02T20:20:20Z".into();
        }
        let text = message.to_string();
        if matches!(fate, Fate::Fails | Fate::Expires) {
            self.dead_letters.insert(text.clone());
        }
        self.records.push((Some(task.clone()), text.into_bytes()));
        self.tasks.insert(task, fate);
    }

    fn useless(&mut self, number: usize) -> (Option<String>, Vec<u8>) {
        self.garbage += 1;
        let message = format!("useless-{number}");
        let nobody = format!("nobody-{number}");
        let (key, text) = match number % 5 {
            0 => (None, format!("this is no message, for the {number}th time")),
            1 => (None, json!({ "messageId": message, "chain": "good" }).to_string()),
            2 => (Some(nobody.clone()), json!({ "messageId": message, "taskId": nobody, "chain": "none" }).to_string()),
            3 => (Some(nobody.clone()), json!({ "messageId": message, "taskId": nobody }).to_string()),
            _ => {
                // No text at all: a dead letter has it in base64, in which three such bytes are four slashes.
                self.dead_letters.insert("////".repeat(number));
                return (None, [0xff, 0xff, 0xff].repeat(number));
            }
        };
        self.dead_letters.insert(text.clone());
        (key, text.into_bytes())
    }

    pub(crate) fn with(&self, wanted: impl Fn(Fate) -> bool) -> BTreeSet<String> {
        self.tasks.iter().filter(|(_, fate)| wanted(**fate)).map(|(task, _)| task.clone()).collect()
    }
}

fn shuffle<T>(items: &mut [T], dice: &mut Dice) {
    for last in (1..items.len()).rev() {
        let other = dice.below(last as u64 + 1);
        items.swap(last, usize::try_from(other).unwrap());
    }
}
