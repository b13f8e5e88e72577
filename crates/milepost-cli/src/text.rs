//! Small things that make output readable: tables, lengths of time, short reasons, words for a shell.

use console::{Alignment, StyledObject, measure_text_width, pad_str, style, truncate_str};
use milepost_core::task::{PlanStatus, StageProgress, StageStatus, TaskStatus, share};
use milepost_core::time::{Millis, Timestamp};

/// Columns as wide as what is in them; the last one runs free.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|title| style(title).dim().to_string()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn lines(&self, indent: &str) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| measure_text_width(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| pad_str(cell, *width, Alignment::Left, None));
            let text = cells.collect::<Vec<_>>().join("  ");
            format!("{indent}{}", text.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

/// `740ms`, `3.2s`, `4m 05s`, `2h 07m`, `3d 4h`.
pub(crate) fn length(time: Millis) -> String {
    let ms = time.get();
    let secs = ms / 1000;
    match secs {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", secs, ms % 1000 / 100),
        60..3600 => format!("{}m {:02}s", secs / 60, secs % 60),
        3600..86400 => format!("{}h {:02}m", secs / 3600, secs % 3600 / 60),
        _ => format!("{}d {}h", secs / 86400, secs % 86400 / 3600),
    }
}

/// `4s`, `1m 20s`, `2h 07m`.
pub(crate) fn seconds(seconds: u64) -> String {
    length(Millis::from_secs(seconds)).replace(".0s", "s").replace("0ms", "0s")
}

/// How far a stage says it is: `45000/100000  45.0%  12500/s  eta 4s`, as far as that is known.
pub(crate) fn how_far(said: &StageProgress) -> String {
    let mut parts = match said.total {
        Some(total) => {
            let percent = (share(said.done, total) * 1000.0).floor() / 10.0;
            vec![format!("{}/{total}", said.done), format!("{percent:.1}%")]
        }
        None => vec![said.done.to_string()],
    };
    parts.extend(said.rate.map(pace));
    parts.extend(said.eta_seconds.map(|eta| format!("eta {}", seconds(eta))));
    parts.join("  ")
}

/// `12500/s`, and below ten with a digit behind the point.
pub(crate) fn pace(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
}

/// Whole seconds until then, at least one while it has not come.
pub(crate) fn until(due: Timestamp, now: Timestamp) -> String {
    let left = due.since(now).get();
    if left == 0 { "now".to_owned() } else { format!("in {}", seconds(left.div_ceil(1000))) }
}

/// One line of at most so many columns.
pub(crate) fn short(text: &str, columns: usize) -> String {
    let line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    truncate_str(&line, columns, "…").into_owned()
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A word as a shell reads it back.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(crate) fn dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

pub(crate) fn plan_status(status: PlanStatus) -> StyledObject<&'static str> {
    let text = style(status.as_str());
    match status {
        PlanStatus::Completed => text.green(),
        PlanStatus::Failed | PlanStatus::Cancelled => text.red(),
        PlanStatus::Paused => text.yellow(),
        PlanStatus::Running => text.cyan(),
        PlanStatus::Created | PlanStatus::Ready => text,
    }
}

pub(crate) fn task_status(status: TaskStatus) -> StyledObject<&'static str> {
    let text = style(status.as_str());
    match status {
        TaskStatus::Completed => text.green(),
        TaskStatus::Failed | TaskStatus::Cancelled | TaskStatus::RollbackFailed => text.red(),
        TaskStatus::Paused | TaskStatus::RollingBack | TaskStatus::RolledBack => text.yellow(),
        TaskStatus::Running => text.cyan(),
        TaskStatus::Pending => text,
    }
}

pub(crate) fn stage_status(status: StageStatus) -> StyledObject<&'static str> {
    let text = style(status.as_str());
    match status {
        StageStatus::Completed => text.green(),
        StageStatus::Failed | StageStatus::Cancelled => text.red(),
        StageStatus::RetryWait | StageStatus::RolledBack => text.yellow(),
        StageStatus::Running => text.cyan(),
        StageStatus::Pending | StageStatus::Skipped => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short_to_read() {
        let cases = [(0, "0ms"), (740, "740ms"), (3_240, "3.2s"), (245_000, "4m 05s"), (7_620_000, "2h 07m")];
        for (ms, text) in cases {
            assert_eq!(length(Millis::new(ms)), text);
        }
    }

    #[test]
    fn how_far_a_stage_is_says_what_is_known_and_no_more() {
        let far = |done, total, rate| how_far(&StageProgress::new(done, total, rate));
        assert_eq!(far(45_000, 100_000, Some(12_500.04)), "45000/100000  45.0%  12500/s  eta 5s");
        assert_eq!(far(500, 1000, None), "500/1000  50.0%");
        assert_eq!(far(7, 0, Some(0.5)), "7  0.5/s");
        assert_eq!(far(1000, 1000, Some(10.0)), "1000/1000  100.0%  10/s  eta 0s");
        assert_eq!((seconds(80), seconds(7_620), seconds(0)), ("1m 20s".into(), "2h 07m".into(), "0s".into()));
    }

    #[test]
    fn a_word_with_spaces_or_quotes_survives_the_shell() {
        assert_eq!(shell("sqlite:a.db"), "sqlite:a.db");
        assert_eq!(shell("a b"), "'a b'");
        assert_eq!(shell("it's"), r"'it'\''s'");
    }

    #[test]
    fn columns_line_up_by_what_is_seen() {
        let mut table = Table::new(&["TASK", "WHY"]);
        table.row(vec!["a-long-one".into(), "x".into()]);
        table.row(vec!["租户".into(), "y".into()]);
        let lines = table.lines("");
        assert_eq!(console::strip_ansi_codes(&lines[1]), "a-long-one  x");
        assert_eq!(lines[2], "租户        y");
    }
}
