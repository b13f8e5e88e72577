//! What a command prints: passed on as it arrives, and never left in the pipe, where it would block the command.

use std::io::PipeReader;

use milepost_engine::stage::Reporter;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// One line for people: as much of it as fits into a reason.
const LINE_CHARS: usize = 300;
const PIECE_BYTES: usize = 16 * 1024;
/// More than any pipe holds by default: what may still be read after all writers should be gone.
const LEFTOVER_BYTES: usize = 1024 * 1024;

pub(super) struct Streams {
    stdout: Stream,
    stderr: Stream,
    reporter: Reporter,
}

impl Streams {
    pub(super) fn new(stdout: PipeReader, stderr: PipeReader, reporter: Reporter) -> std::io::Result<Self> {
        Ok(Self { stdout: Stream::new(stdout)?, stderr: Stream::new(stderr)?, reporter })
    }

    /// Passes on the next piece of either stream; never ready again once both are closed. Losing the race in a
    /// `select!` loses nothing.
    pub(super) async fn pass_on(&mut self) {
        tokio::select! {
            () = self.stdout.pass_on(&self.reporter) => {}
            () = self.stderr.pass_on(&self.reporter) => {}
        }
    }

    /// Passes on what the pipes still hold. All who wrote to them are gone, so nothing is waited for: somebody who
    /// left the group and kept a pipe open does not keep us.
    pub(super) fn pass_on_the_rest(&mut self) {
        self.stdout.pass_on_the_rest(&self.reporter);
        self.stderr.pass_on_the_rest(&self.reporter);
    }

    pub(super) fn last_stdout_line(&self) -> Option<String> {
        self.stdout.last_line.text()
    }

    pub(super) fn last_stderr_line(&self) -> Option<String> {
        self.stderr.last_line.text()
    }
}

struct Stream {
    /// None when it was closed.
    pipe: Option<pipe::Receiver>,
    buffer: Box<[u8]>,
    last_line: LastLine,
}

impl Stream {
    fn new(pipe: PipeReader) -> std::io::Result<Self> {
        Ok(Self {
            pipe: Some(pipe::Receiver::from_owned_fd(pipe.into())?),
            buffer: vec![0; PIECE_BYTES].into_boxed_slice(),
            last_line: LastLine::default(),
        })
    }

    async fn pass_on(&mut self, reporter: &Reporter) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.read(&mut self.buffer).await {
            Ok(length) if length > 0 => self.last_line.take(reporter, &self.buffer[..length]),
            Ok(_) | Err(_) => self.pipe = None,
        }
    }

    fn pass_on_the_rest(&mut self, reporter: &Reporter) {
        let mut left = LEFTOVER_BYTES;
        while let Some(pipe) = &self.pipe {
            // Straight from the (non-blocking) pipe: the runtime may not have heard yet that there is something in it.
            match rustix::io::read(pipe, &mut *self.buffer) {
                Ok(length) if length > 0 => {
                    self.last_line.take(reporter, &self.buffer[..length]);
                    left = left.saturating_sub(length);
                }
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) | Err(_) => self.pipe = None,
            }
            if left == 0 {
                self.pipe = None;
            }
        }
    }
}

/// The last line that says something, however much was printed.
#[derive(Default)]
struct LastLine {
    complete: Vec<u8>,
    growing: Vec<u8>,
}

impl LastLine {
    fn take(&mut self, reporter: &Reporter, bytes: &[u8]) {
        reporter.output(bytes);
        self.feed(bytes);
    }

    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends = matches!(piece.last(), Some(b'\n' | b'\r'));
            // Four bytes a character at most.
            let room = (LINE_CHARS * 4).saturating_sub(self.growing.len());
            self.growing.extend_from_slice(&piece[..piece.len().min(room)]);
            if ends {
                if !self.growing.trim_ascii().is_empty() {
                    std::mem::swap(&mut self.complete, &mut self.growing);
                }
                self.growing.clear();
            }
        }
    }

    /// Without what a terminal would act on: the line ends up in logs and on people's screens.
    fn text(&self) -> Option<String> {
        let unfinished = !self.growing.trim_ascii().is_empty();
        let line = if unfinished { &self.growing } else { &self.complete };
        let text = String::from_utf8_lossy(line);
        let visible: String = text.chars().filter(|c| !c.is_control() || *c == '\t').collect();
        let trimmed = visible.trim();
        if trimmed.is_empty() {
            return None;
        }
        let cut = trimmed.char_indices().nth(LINE_CHARS).map_or(trimmed, |(at, _)| &trimmed[..at]);
        Some(cut.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(pieces: &[&[u8]]) -> Option<String> {
        let mut last = LastLine::default();
        for piece in pieces {
            last.feed(piece);
        }
        last.text()
    }

    #[test]
    fn the_last_line_that_says_something_counts_however_it_arrives() {
        assert_eq!(last_line(&[]), None);
        assert_eq!(last_line(&[b" \n\r\n"]), None);
        assert_eq!(last_line(&[b"one\ntw", b"o\n\n  \n"]).as_deref(), Some("two"));
        assert_eq!(last_line(&[b"one\nunfinished"]).as_deref(), Some("unfinished"));
        assert_eq!(last_line(&[b"10%\r20%\r"]).as_deref(), Some("20%"));
        assert_eq!(last_line(&[b"\x1b[31mred\x1b[0m \xff\n"]).as_deref(), Some("[31mred[0m \u{fffd}"));
    }

    #[test]
    fn a_line_without_end_is_cut_and_not_kept_whole() {
        let mut last = LastLine::default();
        for _ in 0..1000 {
            last.feed(&[b'x'; 4096]);
        }
        assert_eq!(last.text().map(|text| text.len()), Some(LINE_CHARS));
        assert!(last.growing.capacity() <= 8 * LINE_CHARS, "{}", last.growing.capacity());
    }
}
