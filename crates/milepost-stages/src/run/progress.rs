//! Follows the `done total` lines that a command appends to `$MILEPOST_PROGRESS`, reading each byte at most once.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use milepost_engine::stage::{Progress, Reporter};

/// As often as anybody is told.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Of what came since the last look only the end can matter.
const LOOK_BYTES: u64 = 64 * 1024;

pub(super) struct ProgressFile<'a> {
    path: &'a Path,
    read_up_to: u64,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
    reported: Progress,
}

impl<'a> ProgressFile<'a> {
    pub(super) fn at(path: &'a Path) -> Self {
        Self { path, read_up_to: 0, unfinished: Vec::new(), reported: Progress::default() }
    }

    /// Reports what was written since the last look. Small blocking reads of a small local file.
    pub(super) fn look(&mut self, reporter: &Reporter) {
        let mut lines = self.unread();
        let end = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.unfinished = lines.split_off(end);
        self.unfinished.truncate(LOOK_BYTES as usize);
        self.report(&lines, reporter);
    }

    /// The last look, at which a line without an end counts as well.
    pub(super) fn finish(mut self, reporter: &Reporter) {
        let lines = self.unread();
        self.report(&lines, reporter);
    }

    fn unread(&mut self) -> Vec<u8> {
        // Without the file there is nothing new; whether it comes back is the command's business.
        let new = self.new_bytes().unwrap_or_default();
        let mut lines = std::mem::take(&mut self.unfinished);
        lines.extend_from_slice(&new);
        lines
    }

    fn new_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        let metadata = std::fs::metadata(self.path)?;
        if !metadata.is_file() || metadata.len() <= self.read_up_to {
            return Ok(Vec::new());
        }
        let from = self.read_up_to.max(metadata.len().saturating_sub(LOOK_BYTES));
        if from > self.read_up_to {
            // Something was left out, so the line begun before has lost its middle.
            self.unfinished = b"? ".to_vec();
        }
        let mut file = File::open(self.path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut new = Vec::new();
        file.take(metadata.len() - from).read_to_end(&mut new)?;
        self.read_up_to = from + new.len() as u64;
        Ok(new)
    }

    /// The last valid line counts, unless it goes backwards.
    fn report(&mut self, lines: &[u8], reporter: &Reporter) {
        let Some(progress) = lines.rsplit(|byte| *byte == b'\n').find_map(parse) else { return };
        if progress != self.reported && progress.done >= self.reported.done {
            self.reported = progress;
            reporter.progress(progress);
        }
    }
}

fn parse(line: &[u8]) -> Option<Progress> {
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
    let progress = Progress { done: numbers.next()?.ok()?, total: numbers.next()?.ok()? };
    numbers.next().is_none().then_some(progress)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use milepost_engine::stage::ReportSink;

    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<(u64, u64)>>);

    impl ReportSink for Seen {
        fn progress(&self, progress: Progress) {
            self.0.lock().unwrap().push((progress.done, progress.total));
        }
        fn output(&self, _: &[u8]) {}
    }

    /// What is reported when each piece is written between two looks.
    fn reported(pieces: &[&[u8]]) -> Vec<(u64, u64)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let seen = Arc::new(Seen::default());
        let reporter = Reporter::new(seen.clone());
        let mut progress = ProgressFile::at(&path);
        for piece in pieces {
            file.write_all(piece).unwrap();
            progress.look(&reporter);
        }
        progress.finish(&reporter);
        seen.0.lock().unwrap().clone()
    }

    #[test]
    fn the_last_valid_line_of_each_look_is_reported_and_malformed_lines_are_not() {
        assert_eq!(reported(&[b"1 10\n2 10\n3 10\n", b"oops\n4 10\n-5 10\n5\n6 10 x\n\xff\n"]), [(3, 10), (4, 10)]);
    }

    #[test]
    fn progress_never_goes_backwards_and_the_same_is_not_reported_twice() {
        assert_eq!(reported(&[b"5 10\n", b"5 10\n", b"3 10\n", b"5 20\n", b"6 20\n"]), [(5, 10), (5, 20), (6, 20)]);
    }

    #[test]
    fn a_line_counts_once_its_end_is_written_or_the_command_is_over() {
        assert_eq!(reported(&[b"1", b"2 1", b"00\n", b"50 100"]), [(12, 100), (50, 100)]);
    }

    #[test]
    fn of_more_than_one_look_can_read_the_end_counts() {
        let flood = "1 9\n".repeat(100_000) + "2 9\n";
        assert_eq!(reported(&[b"7", flood.as_bytes()]), [(2, 9)]);
    }
}
