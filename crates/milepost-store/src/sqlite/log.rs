//! A task's own log: its rows lie between those of others, and each knows the one before it.

use std::borrow::Cow;
use std::sync::mpsc;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Row, Rows};

use crate::codec::{LogRow, check_body, damaged, decode_events_into};
use crate::error::StoreError;
use crate::model::TaskRef;

use super::codec::unavailable;

/// A log with more rows than this is decoded by a second thread while the first goes on reading.
const CHUNK: usize = 1024;
/// Rows no further apart than this are found faster by passing over what lies between them than by looking up each.
const NEAR: i64 = 16;
/// So much is read ahead of the decoding.
const AHEAD: usize = 4;

/// Where in a log to begin: behind this event, and behind this row if it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) sequence: u64,
    pub(super) position: i64,
}

/// Walks a task's log back from its newest row; the rows are answered in that order, the newest first. The last of them
/// may begin before `since`. Where the way back is broken, whatever rows there are are looked for one by one.
pub(super) fn read_log(
    connection: &Connection,
    key: &TaskRef,
    newest: i64,
    since: Since,
) -> Result<Vec<LogRow>, StoreError> {
    match walk_log(connection, key, newest, since) {
        Err(StoreError::Damaged { .. }) => search_log(connection, key, newest, since),
        walked => walked,
    }
}

fn walk_log(connection: &Connection, key: &TaskRef, newest: i64, since: Since) -> Result<Vec<LogRow>, StoreError> {
    let mut walk = Walk::new(connection, key, newest, since)?;
    let first = walk.chunk()?;
    if walk.is_over() {
        return Ok(decode(key, [first]));
    }
    std::thread::scope(|scope| {
        let (chunks, read) = mpsc::sync_channel(AHEAD);
        let decoded = scope.spawn(|| decode(key, read));
        let mut chunk = first;
        while chunks.send(chunk).is_ok() && !walk.is_over() {
            chunk = walk.chunk()?;
        }
        drop(chunks);
        Ok(decoded.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Reads the whole table, which only a damaged task is worth.
fn search_log(connection: &Connection, key: &TaskRef, newest: i64, since: Since) -> Result<Vec<LogRow>, StoreError> {
    let read = || {
        let mut statement = connection.prepare_cached(
            "SELECT pos, seq, crc, body FROM events WHERE task = ?1 AND pos > ?2 AND pos <= ?3 ORDER BY pos DESC",
        )?;
        let rows = statement.query_map((key.no, since.position, newest), |row| {
            let (position, sequence) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs());
            Ok(LogRow::read(sequence, &text(row.get_ref(3)?), crc(row, 2)?, || name(position, key)))
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(unavailable("read events"))
}

/// What is no text, or none any more, fails its checksum.
fn text(body: ValueRef<'_>) -> Cow<'_, str> {
    String::from_utf8_lossy(body.as_bytes().unwrap_or_default())
}

/// What is no number, or none any more, fits no content.
fn crc(row: &Row<'_>, index: usize) -> rusqlite::Result<u32> {
    Ok(row.get_ref(index)?.as_i64().ok().and_then(|crc| u32::try_from(crc).ok()).unwrap_or(0))
}

fn decode(key: &TaskRef, chunks: impl IntoIterator<Item = Chunk>) -> Vec<LogRow> {
    let mut log = Vec::new();
    for chunk in chunks {
        decode_chunk(key, &chunk, &mut log);
    }
    log
}

/// Rows that follow one another are put together, as if one commit had written them: a list for each would be made for
/// an event or two.
fn decode_chunk(key: &TaskRef, chunk: &Chunk, log: &mut Vec<LogRow>) {
    let first = log.len();
    // The oldest first, so that what follows it can be put behind it.
    for (index, raw) in chunk.rows.iter().enumerate().rev() {
        let begin = if index == 0 { 0 } else { chunk.rows[index - 1].end };
        let (what, body) = (|| name(raw.position, key), &chunk.text[begin..raw.end]);
        let follows = |row: &&mut LogRow| row.lost.is_none() && row.sequence + row.records.len() as u64 == raw.sequence;
        let whole = check_body(body, raw.crc, what);
        let decoded = whole.and_then(|()| match log[first..].last_mut().filter(follows) {
            Some(row) => {
                let before = row.records.len();
                decode_events_into(&mut row.records, body, what).inspect_err(|_| row.records.truncate(before))
            }
            None => {
                let mut records = Vec::with_capacity(chunk.events_from(raw.sequence));
                decode_events_into(&mut records, body, what)?;
                log.push(LogRow { sequence: raw.sequence, records, lost: None });
                Ok(())
            }
        });
        if let Err(error) = decoded {
            log.push(LogRow::lost(raw.sequence, &error));
        }
    }
    log[first..].reverse();
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

impl Chunk {
    /// About how many events it has from this one on; its newest row may have more than one.
    fn events_from(&self, sequence: u64) -> usize {
        let newest = self.rows.first().map_or(0, |raw| raw.sequence);
        let events = usize::try_from(newest.saturating_sub(sequence)).unwrap_or(usize::MAX);
        events.min(self.rows.len() * 4) + 2
    }
}

struct Raw {
    position: i64,
    sequence: u64,
    crc: u32,
    /// Of its body, which begins where that of the row before ends.
    end: usize,
}

struct Walk<'a> {
    one: CachedStatement<'a>,
    range: CachedStatement<'a>,
    key: &'a TaskRef,
    since: Since,
    /// None: it has come to its end.
    next: Option<i64>,
    /// How many positions to pass over in search of the next rows; none: look up the next one by itself.
    window: i64,
    /// Of the text of the last chunk.
    length: usize,
}

impl<'a> Walk<'a> {
    fn new(connection: &'a Connection, key: &'a TaskRef, newest: i64, since: Since) -> Result<Self, StoreError> {
        let prepare = |sql| connection.prepare_cached(sql).map_err(unavailable("read events"));
        let one = prepare("SELECT pos, task, seq, prev, crc, body FROM events WHERE pos = ?1")?;
        let range = prepare(
            "SELECT pos, task, seq, prev, crc, body FROM events WHERE pos BETWEEN ?1 AND ?2 AND task = ?3 ORDER BY pos DESC",
        )?;
        let next = (newest != 0 && newest != since.position).then_some(newest);
        Ok(Self { one, range, key, since, next, window: 0, length: 0 })
    }

    fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The next rows, at least one of them.
    fn chunk(&mut self) -> Result<Chunk, StoreError> {
        let rows = if self.length == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) };
        // The one before was about as long.
        let mut chunk = Chunk { rows, text: String::with_capacity(self.length + self.length / 8) };
        while chunk.rows.len() < CHUNK
            && let Some(position) = self.next
        {
            let rows = match self.window {
                0 => self.one.query([position]),
                window => self.range.query((position.saturating_sub(window), position, self.key.no)),
            };
            let before = chunk.rows.len();
            self.next = follow(rows.map_err(unavailable("read events"))?, position, self.key, self.since, &mut chunk)?;
            self.window = self.next.map_or(0, |next| widen(self.window, position - next, chunk.rows.len() - before));
        }
        self.length = chunk.text.len();
        Ok(chunk)
    }
}

/// Twice as far, if it was worth it: what is passed over in vain is never much more than what was found before.
fn widen(window: i64, passed: i64, found: usize) -> i64 {
    let worth_it = passed <= window + NEAR && found as i64 * NEAR >= window;
    if worth_it { (window * 2).clamp(NEAR * 4, NEAR * CHUNK as i64) } else { 0 }
}

/// Takes rows as long as each is the one that the row after it names; answers the one that is still to be found.
fn follow(
    mut rows: Rows<'_>,
    newest: i64,
    key: &TaskRef,
    since: Since,
    chunk: &mut Chunk,
) -> Result<Option<i64>, StoreError> {
    let mut wanted = newest;
    while let Some(row) = rows.next().map_err(unavailable("read events"))? {
        let columns = || {
            let (position, task, seq) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            Ok((position, task, seq, row.get::<_, i64>(3)?, crc(row, 4)?, text(row.get_ref(5)?)))
        };
        let (position, task, seq, prev, crc, body) = columns().map_err(unavailable("read events"))?;
        if position != wanted {
            break;
        }
        if task != key.no || prev >= position {
            return Err(damaged(name(position, key), "it is another task's, or out of order"));
        }
        let sequence = u64::try_from(seq).unwrap_or(0);
        chunk.text.push_str(&body);
        chunk.rows.push(Raw { position, sequence, crc, end: chunk.text.len() });
        if sequence <= since.sequence + 1 || prev == 0 || prev == since.position {
            return Ok(None);
        }
        wanted = prev;
    }
    // What it looked for first was not there at all.
    if wanted == newest { Err(damaged(name(newest, key), "it is missing")) } else { Ok(Some(wanted)) }
}
