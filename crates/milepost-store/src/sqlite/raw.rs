//! What the disk and the bare database give, for benchmarks to be measured against: our own statements and rows, in a
//! loop with nothing around it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use milepost_core::id::StageName;
use milepost_core::task::{Event, Outputs, Record};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::commit::{ADVANCE, INSERT_EVENT};
use super::schema;
use super::writer::{CHECKPOINT_PAGES, count_wal_pages};
use crate::codec::{Body, encode_events};

type Trouble = Box<dyn std::error::Error + Send + Sync>;

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

/// A measurement under way. A shared disk wavers from one second to the next, so its parts are taken in two halves, one
/// before the benchmark's own run and one after it.
#[derive(Debug)]
pub struct Measurement {
    folder: PathBuf,
    body: Body,
    one_by_one: Bare,
    syncs: Tally,
    commits: Tally,
}

impl Measurement {
    /// Measures in a folder of its own making inside `folder`, which `finish` leaves nothing of.
    pub fn start(folder: &Path, outputs: Outputs) -> Result<Self, Trouble> {
        let folder = folder.join(format!("milepost-raw-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let one_by_one = Bare::open(&folder.join("one.db"))?;
        let body = stage_body(outputs)?;
        let mut this = Self { folder, body, one_by_one, syncs: Tally::default(), commits: Tally::default() };
        this.half()?;
        Ok(this)
    }

    pub fn finish(mut self, batch: usize) -> Result<RawRates, Trouble> {
        self.half()?;
        let mut stages = Tally::default();
        Bare::open(&self.folder.join("batch.db"))?.write(batch.max(1), &self.body, &mut stages)?;
        Ok(RawRates { fdatasyncs: self.syncs.rate(), commits: self.commits.rate(), stages: stages.rate() })
    }

    fn half(&mut self) -> Result<(), Trouble> {
        sync(&self.folder.join("sync"), &mut self.syncs)?;
        self.one_by_one.write(1, &self.body, &mut self.commits)?;
        Ok(())
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        // What is left is a folder with a telling name; the figures are not worse for it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How much was done in how long.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    time: Duration,
}

impl Tally {
    fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

fn sync(path: &Path, tally: &mut Tally) -> std::io::Result<()> {
    let file = File::create(path)?;
    let page = [7u8; 4096];
    // Written over and over, like the write-ahead log between two checkpoints.
    for place in 0..64 {
        file.write_all_at(&page, place * 4096)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    while start.elapsed() < LASTS {
        file.write_all_at(&page, tally.count % 64 * 4096)?;
        file.sync_data()?;
        tally.count += 1;
    }
    tally.time += start.elapsed();
    Ok(())
}

/// What one stage of a chain leaves in the log: its result, and the start of the next.
pub(crate) fn stage_body(outputs: Outputs) -> Result<Body, Trouble> {
    let now = Timestamp::from_millis(1_764_000_000_000);
    let completed = Event::StageCompleted { stage: StageName::parse("s4")?, attempt: 1, outputs };
    let started = Event::StageStarted { stage: StageName::parse("s5")?, attempt: 1, rollback: false, step: None };
    Ok(encode_events(&[Record::new(now, completed), Record::new(now, started)]))
}

/// A database of ours with tasks in it, and where the next stage goes.
#[derive(Debug)]
struct Bare {
    connection: Connection,
    wal_pages: Arc<AtomicU64>,
    position: i64,
}

impl Bare {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let mut connection = Connection::open(path)?;
        schema::configure_writer(&connection)?;
        schema::migrate(&mut connection, 0)?;
        fill(&connection)?;
        let wal_pages = count_wal_pages(&mut connection)?;
        Ok(Self { connection, wal_pages, position: 1 })
    }

    fn write(&mut self, batch: usize, body: &Body, tally: &mut Tally) -> rusqlite::Result<()> {
        let connection = &self.connection;
        let start = Instant::now();
        while start.elapsed() < LASTS {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            for _ in 0..batch {
                let position = self.position;
                let (no, version) = (position % TASKS + 1, position / TASKS + 2);
                let event = params![position, no, version, position - 1, body.crc, body.text];
                connection.prepare_cached(INSERT_EVENT)?.execute(event)?;
                let (none, now) = (None::<i64>, 1_764_000_000_000i64);
                let row = params![no, version, position, version, "s5", 1, none, 0, None::<String>, now, 10];
                connection.prepare_cached(ADVANCE)?.execute(row)?;
                self.position += 1;
            }
            connection.prepare_cached("COMMIT")?.execute([])?;
            tally.count += batch as u64;
            if self.wal_pages.swap(0, Ordering::Relaxed) >= CHECKPOINT_PAGES {
                connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            }
        }
        tally.time += start.elapsed();
        Ok(())
    }
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
