//! What the disk and the bare database give, for benchmarks to be measured against: our own statements and rows, in a
//! loop with nothing around it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use milepost_core::id::StageName;
use milepost_core::task::{Event, Outputs, Record};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::codec::{Body, encode_events};
use super::commit::{ADVANCE, INSERT_EVENT};
use super::schema;
use super::writer::{CHECKPOINT_PAGES, count_wal_pages};

/// Rates per second.
#[derive(Debug, Clone, Copy)]
pub struct RawRates {
    /// Syncs of one written page.
    pub fdatasyncs: f64,
    /// Transactions of one stage each.
    pub commits: f64,
    /// Stages, in transactions of the given size.
    pub stages: f64,
}

/// Tasks whose rows are written to in turn, as a node does with the tasks it has in hand.
const TASKS: i64 = 512;
const LASTS: Duration = Duration::from_millis(1500);

/// Measures in a folder of its own making inside `folder`, and leaves nothing behind.
pub fn measure(
    folder: &Path,
    batch: usize,
    outputs: Outputs,
) -> Result<RawRates, Box<dyn std::error::Error + Send + Sync>> {
    let name = folder.join(format!("milepost-raw-{}", std::process::id()));
    std::fs::create_dir(&name)?;
    let measured = measure_in(&name, batch, outputs);
    std::fs::remove_dir_all(&name)?;
    measured
}

fn measure_in(
    folder: &Path,
    batch: usize,
    outputs: Outputs,
) -> Result<RawRates, Box<dyn std::error::Error + Send + Sync>> {
    let fdatasyncs = sync_rate(&folder.join("sync"))?;
    let body = stage_body(outputs)?;
    let commits = stage_rate(&folder.join("one.db"), 1, &body)?;
    let stages = stage_rate(&folder.join("batch.db"), batch.max(1), &body)?;
    Ok(RawRates { fdatasyncs, commits, stages })
}

fn sync_rate(path: &Path) -> std::io::Result<f64> {
    let file = File::create(path)?;
    let page = [7u8; 4096];
    // Written over and over, like the write-ahead log between two checkpoints.
    for place in 0..64 {
        file.write_all_at(&page, place * 4096)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut count: u64 = 0;
    while start.elapsed() < LASTS {
        file.write_all_at(&page, count % 64 * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// What one stage of a chain leaves in the log: its result, and the start of the next.
fn stage_body(outputs: Outputs) -> Result<Body, Box<dyn std::error::Error + Send + Sync>> {
    let now = Timestamp::from_millis(1_764_000_000_000);
    let completed = Event::StageCompleted { stage: StageName::parse("s4")?, attempt: 1, outputs };
    let started = Event::StageStarted { stage: StageName::parse("s5")?, attempt: 1, rollback: false };
    Ok(encode_events(&[Record::new(now, completed), Record::new(now, started)]))
}

fn stage_rate(path: &Path, batch: usize, body: &Body) -> rusqlite::Result<f64> {
    let mut connection = Connection::open(path)?;
    schema::configure_writer(&connection)?;
    schema::migrate(&mut connection, 0)?;
    fill(&connection)?;
    let wal_pages = count_wal_pages(&mut connection)?;
    let (mut position, mut task, mut stages) = (1i64, 0i64, 0u64);
    let start = Instant::now();
    while start.elapsed() < LASTS {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for _ in 0..batch {
            let (no, version) = (task % TASKS + 1, task / TASKS + 2);
            connection.prepare_cached(INSERT_EVENT)?.execute(params![
                position,
                no,
                version,
                position - 1,
                body.crc,
                body.text
            ])?;
            let row =
                params![no, version, position, version, "s5", 1, None::<i64>, 0, None::<String>, 1_764_000_000_000i64];
            connection.prepare_cached(ADVANCE)?.execute(row)?;
            position += 1;
            task += 1;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        stages += batch as u64;
        if wal_pages.swap(0, Ordering::Relaxed) >= CHECKPOINT_PAGES {
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
    }
    Ok(stages as f64 / start.elapsed().as_secs_f64())
}

fn fill(connection: &Connection) -> rusqlite::Result<()> {
    for no in 1..=TASKS {
        connection.execute(
            "INSERT INTO task_runtimes (no, plan, queue, rank, status, version, lease, last_event, done, total, stage, attempt, \
             flags, started_at, updated_at) VALUES (?1, 1, 2, 0, 1, 1, 1, 0, 0, 10, 's0', 1, 0, 1764000000000, 1764000000000)",
            [no],
        )?;
    }
    Ok(())
}
