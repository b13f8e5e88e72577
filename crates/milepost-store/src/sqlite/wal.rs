//! Whether a write-ahead log ends where its writer stopped, or where something has damaged it.
//!
//! SQLite reads the log up to the first frame that does not fit its checksum and takes that for the end of what was
//! written, as it is after a crash. If the frame was damaged later, commits that were acknowledged follow it, and would be
//! dropped without a word, with every stage that they had recorded to be run again.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use crate::codec::damaged;
use crate::error::StoreError;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Reads the log of a file that nobody writes. No log is a good one.
pub(super) fn check(database: &Path) -> Result<(), StoreError> {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    let found = match File::open(&path) {
        Ok(file) => find_damage(BufReader::with_capacity(1 << 18, file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let operation = "read the write-ahead log";
    let unreadable =
        |error: std::io::Error| StoreError::Unavailable { backend: "sqlite", operation, source: error.into() };
    found.map_err(unreadable)?.map_or(Ok(()), |damage| {
        let database = database.display();
        let detail = format!(
            "{damage}, and acknowledged commits follow it; nothing was changed. Restore the file and its log from a copy, \
             or give up what follows with `sqlite3 {database} 'PRAGMA wal_checkpoint(TRUNCATE)'`"
        );
        Err(damaged(format!("the write-ahead log {database}-wal"), detail))
    })
}

/// What does not fit, if that is not simply where the writer stopped.
///
/// A transaction's frames are written after the one before it was synced. So where a frame continues the checksum of one
/// that ends a transaction, that transaction was whole on the disk by then, and what is unreadable in front of it was
/// damaged since. A disk that lost power may keep any part of the last transaction, but nothing continues that.
fn find_damage(mut log: impl Read) -> std::io::Result<Option<String>> {
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header)? || header == [0; HEADER] {
        return Ok(None);
    }
    let big_endian = header[3] & 1 == 1;
    let sums = checksum((0, 0), &header[..24], big_endian);
    let page_size = match number(&header, 8) {
        1 => 65_536,
        size => size as usize,
    };
    if sums != (number(&header, 24), number(&header, 28)) || !page_size.is_power_of_two() || page_size < 512 {
        return Ok(Some("its header does not fit its checksum".to_owned()));
    }
    let mut frame = vec![0; FRAME_HEADER + page_size];
    // The frame before: what its checksum says, what it should say, and whether it ends a transaction.
    let (mut before, mut should_be, mut commits) = (sums, sums, false);
    let mut broken = None;
    for place in 1u64.. {
        if !fill(&mut log, &mut frame)? {
            break;
        }
        let said = (number(&frame, 16), number(&frame, 20));
        let continued = |sums| {
            let sums = checksum(sums, &frame[..8], big_endian);
            checksum(sums, &frame[FRAME_HEADER..], big_endian)
        };
        let has_salt = frame[8..16] == header[16..24];
        // Old rounds make up most of a log that is not full, and only what follows a transaction matters behind the break.
        let matters = has_salt && (commits || broken.is_none());
        let sums = if matters { continued(before) } else { said };
        // The frame that is broken may be so in its checksum alone.
        let fits = matters && (sums == said || should_be != before && continued(should_be) == said);
        match broken {
            None if !fits => broken = Some(place),
            Some(broken) if fits => return Ok(Some(format!("frame {broken} does not fit its checksum"))),
            None | Some(_) => {}
        }
        (before, should_be) = (said, sums);
        // Whatever its salt is: nothing of this round continues what is of another, so only damage can have changed it.
        commits = number(&frame, 4) != 0;
    }
    Ok(None)
}

/// SQLite's own: two sums, each word of a pair added to one of them together with the other.
fn checksum(mut sums: (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let read = if big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
    for pair in bytes.chunks_exact(8) {
        let word = |at: usize| read([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        sums.0 = sums.0.wrapping_add(word(0)).wrapping_add(sums.1);
        sums.1 = sums.1.wrapping_add(word(4)).wrapping_add(sums.0);
    }
    sums
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// False at the end, also in the middle of what would have filled it.
fn fill(log: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
