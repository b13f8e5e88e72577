//! A task's own log: its rows lie between those of others, and each knows the one before it.

use std::sync::mpsc;

use rusqlite::{CachedStatement, Connection};

use crate::codec::{LogRow, check_body, damaged, decode_events_into};
use crate::error::StoreError;
use crate::model::TaskRef;

use super::codec::unavailable;

/// A log with more rows than this is decoded by a second thread while the first goes on reading.
const CHUNK: usize = 1024;
/// So much is read ahead of the decoding.
const AHEAD: usize = 4;

/// Where in a log to begin: behind this event, and behind this row if it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) sequence: u64,
    pub(super) position: i64,
}

/// Walks a task's log back from its newest row; the rows are answered in that order, the newest first. The last of them
/// may begin before `since`.
pub(super) fn read_log(
    connection: &Connection,
    key: &TaskRef,
    newest: i64,
    since: Since,
) -> Result<Vec<LogRow>, StoreError> {
    let statement = connection
        .prepare_cached("SELECT task, seq, prev, crc, body FROM events WHERE pos = ?1")
        .map_err(unavailable("read events"))?;
    let mut walk = Walk { statement, key, since, next: (newest != 0 && newest != since.position).then_some(newest) };
    let first = walk.chunk()?;
    if walk.is_over() {
        return decode(key, [first]);
    }
    std::thread::scope(|scope| {
        let (chunks, read) = mpsc::sync_channel(AHEAD);
        let decoded = scope.spawn(|| decode(key, read));
        let mut chunk = first;
        // One who no longer listens has found damage, and says so below.
        while chunks.send(chunk).is_ok() && !walk.is_over() {
            chunk = walk.chunk()?;
        }
        drop(chunks);
        decoded.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn decode(key: &TaskRef, chunks: impl IntoIterator<Item = Chunk>) -> Result<Vec<LogRow>, StoreError> {
    let (mut log, mut records) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let mut begin = 0;
        for Raw { position, sequence, crc, end } in chunk.rows {
            let (what, body) = (|| name(position, key), &chunk.text[begin..end]);
            check_body(body, crc, what)?;
            decode_events_into(&mut records, body, what)?;
            let mut own = Vec::with_capacity(records.len());
            own.append(&mut records);
            log.push(LogRow { sequence, records: own });
            begin = end;
        }
    }
    Ok(log)
}

fn name(position: i64, key: &TaskRef) -> String {
    format!("event row {position} of task {}", key.id)
}

/// Rows as they lie in the table, their bodies one after the other.
#[derive(Default)]
struct Chunk {
    rows: Vec<Raw>,
    text: String,
}

struct Raw {
    position: i64,
    sequence: u64,
    crc: u32,
    /// Of its body, which begins where that of the row before ends.
    end: usize,
}

struct Walk<'a> {
    statement: CachedStatement<'a>,
    key: &'a TaskRef,
    since: Since,
    /// None: it has come to its end.
    next: Option<i64>,
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        self.next.is_none()
    }

    fn chunk(&mut self) -> Result<Chunk, StoreError> {
        let mut chunk = Chunk::default();
        while chunk.rows.len() < CHUNK
            && let Some(position) = self.next
        {
            self.step(position, &mut chunk)?;
        }
        Ok(chunk)
    }

    fn step(&mut self, position: i64, chunk: &mut Chunk) -> Result<(), StoreError> {
        let broken = |detail: &str| damaged(name(position, self.key), detail);
        let mut rows = self.statement.query([position]).map_err(unavailable("read events"))?;
        let row = rows.next().map_err(unavailable("read events"))?.ok_or_else(|| broken("it is missing"))?;
        let columns = || {
            let (task, seq, prev) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            Ok((task, seq, prev, row.get::<_, u32>(3)?, row.get_ref(4)?.as_str()?))
        };
        let (task, seq, prev, crc, body) = columns().map_err(unavailable("read events"))?;
        if task != self.key.no || prev >= position {
            return Err(broken("it is another task's, or out of order"));
        }
        let sequence = u64::try_from(seq).unwrap_or(0);
        chunk.text.push_str(body);
        chunk.rows.push(Raw { position, sequence, crc, end: chunk.text.len() });
        let last = sequence <= self.since.sequence + 1 || prev == 0 || prev == self.since.position;
        self.next = (!last).then_some(prev);
        Ok(())
    }
}
