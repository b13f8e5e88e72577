//! Group commit: whatever waits to be written goes to the disk in one transaction.
//!
//! Under load a thread of its own writes, and what arrives during one sync rides in the next. When nobody writes, the
//! caller does it at once: for a lone task two thread hops would cost more than the sync itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::books::BookChange;
use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, Committed, Note, PlanChange, PlanRow, StoreStats, Submitted, TokenRow};
use crate::moved::MovedPlan;

use super::board::Board;
use super::codec::unavailable;
use super::commit::EncodedCommit;
use super::counts::PlanCounts;
use super::schema::BUSY_TIMEOUT;
use super::submit::EncodedSubmission;

/// Larger batches add latency and no speed: the sync is a small part of them already.
const MAX_BATCH: usize = 2048;
/// A caller writes by itself only while groups are this small; larger ones are the writer thread's, so that no async
/// worker is held for long and groups grow as they should.
const MAX_INLINE: usize = 2;
/// WAL pages after which its content is moved into the database: 32 MiB.
pub(super) const CHECKPOINT_PAGES: u64 = 8192;

/// One thing to write, and where its answer goes.
pub(super) enum Operation {
    Commit(Box<EncodedCommit>, Reply<Committed>),
    Claim(ClaimRequest, Reply<Claimed>),
    Submit(Box<EncodedSubmission>, Reply<Submitted>),
    ChangePlan(PlanChange, Reply<PlanRow>),
    Note(Vec<Note>, Reply<()>),
    PutToken(Box<TokenRow>, Reply<()>),
    Import(Box<MovedPlan>, Reply<()>),
    ChangeBooks(BookChange, Reply<()>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// The connection that writes and the memory that goes with it; whoever holds the lock on it is the writer.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) board: Board,
}

pub(super) struct Shared {
    writer: Mutex<Writer>,
    queue: Mutex<VecDeque<Operation>>,
    arrived: Condvar,
    stopping: AtomicBool,
    last_batch: AtomicUsize,
    wal_pages: Arc<AtomicU64>,
    stats: Stats,
    counts: Arc<PlanCounts>,
    answers: Option<mpsc::UnboundedSender<Vec<Answer>>>,
}

#[derive(Default)]
struct Stats {
    syncs: AtomicU64,
    batches: AtomicU64,
    operations: AtomicU64,
    commits: AtomicU64,
}

/// Starts the writer thread; dropping this lets it finish what is queued and ends it.
pub(super) struct WriterHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl WriterHandle {
    pub(super) fn start(
        mut connection: Connection,
        mut board: Board,
        counts: Arc<PlanCounts>,
    ) -> Result<Self, StoreError> {
        counts.publish(board.recounted.drain());
        let wal_pages = count_wal_pages(&mut connection).map_err(unavailable("watch the write-ahead log"))?;
        let shared = Arc::new(Shared {
            writer: Mutex::new(Writer { connection, board }),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            stopping: AtomicBool::new(false),
            last_batch: AtomicUsize::new(0),
            wal_pages,
            stats: Stats::default(),
            counts,
            answers: answer_inside_the_runtime(),
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("milepost-writer".to_owned()).spawn(move || shared.write_until_stopped())
        };
        let thread = thread.map_err(|source| StoreError::Unavailable {
            backend: "sqlite",
            operation: "start its writer thread",
            source: source.into(),
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Queues an operation; it may be written before this returns. After `close` it is dropped, and its answer with it.
    pub(super) async fn send(&self, operation: Operation) {
        if self.shared.stopping.load(Ordering::Acquire) {
            return;
        }
        lock(&self.shared.queue).push_back(operation);
        let pass_on = PassOn(&self.shared);
        if self.shared.is_quiet() {
            // Whoever else is about to write gets the chance to join in, also where there is one thread for all.
            tokio::task::yield_now().await;
            if self.shared.is_quiet() && self.shared.write_here() {
                std::mem::forget(pass_on);
            }
        }
    }

    /// Writes what is queued and ends.
    pub(super) fn close(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        drop(lock(&self.shared.queue));
        self.shared.arrived.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // A writer that panicked has said so already; there is nothing to add here.
            let _ = thread.join();
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        let stats = &self.shared.stats;
        StoreStats {
            syncs: stats.syncs.load(Ordering::Relaxed),
            batches: stats.batches.load(Ordering::Relaxed),
            operations: stats.operations.load(Ordering::Relaxed),
            commits: stats.commits.load(Ordering::Relaxed),
            round_trips: 0,
        }
    }
}

/// Wakes the writer thread for what is queued, also when the caller is dropped before it gets to write by itself.
struct PassOn<'a>(&'a Shared);

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        self.0.arrived.notify_one();
    }
}

/// A task of the runtime we are in that hands out answers, if we are in one.
fn answer_inside_the_runtime() -> Option<mpsc::UnboundedSender<Vec<Answer>>> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let (sender, mut receiver) = mpsc::unbounded_channel::<Vec<Answer>>();
    runtime.spawn(async move {
        while let Some(answers) = receiver.recv().await {
            answers.into_iter().for_each(Answer::send);
        }
    });
    Some(sender)
}

/// The length of the write-ahead log after each commit.
pub(super) fn count_wal_pages(connection: &mut Connection) -> rusqlite::Result<Arc<AtomicU64>> {
    let wal_pages = Arc::new(AtomicU64::new(0));
    let pages = wal_pages.clone();
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: i32| {
        pages.store(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(wal_pages)
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Little is being written, and little waits to be.
    fn is_quiet(&self) -> bool {
        self.last_batch.load(Ordering::Relaxed) <= MAX_INLINE && lock(&self.queue).len() <= MAX_INLINE
    }

    /// Writes what is queued on this thread, unless somebody is writing; true when nothing is left to do.
    fn write_here(&self) -> bool {
        let Some(mut writer) = try_lock(&self.writer) else { return false };
        if lock(&self.queue).is_empty() {
            return true;
        }
        // A caller is an async worker, which nothing may hold up: for a file that another program has locked, the
        // writer thread waits.
        let Some(begun) = writer.begin_at_once() else { return false };
        let batch = self.take(MAX_INLINE);
        let answers = self.write(&mut writer, batch, begun);
        drop(writer);
        answers.into_iter().for_each(Answer::send);
        // What came meanwhile found the writer busy and left it to us to pass on.
        lock(&self.queue).is_empty()
    }

    fn write_until_stopped(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.is_empty() {
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            // A panic fails this group, whose callers see their answers dropped; the next transaction starts afresh.
            let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut writer = lock(&self.writer);
                let batch = self.take(MAX_BATCH);
                let answers = self.write(&mut writer, batch, false);
                drop(writer);
                self.pass_on(answers);
            }));
            if written.is_err() {
                tracing::error!("the writer panicked; its group of commits was rolled back");
            }
        }
    }

    fn take(&self, most: usize) -> Vec<Operation> {
        let mut queue = lock(&self.queue);
        let count = queue.len().min(most);
        queue.drain(..count).collect()
    }

    /// Waking a task from outside its runtime costs a lock and perhaps a system call; a task inside wakes hundreds for
    /// less, and the writer goes on writing meanwhile.
    fn pass_on(&self, answers: Vec<Answer>) {
        let refused = match &self.answers {
            Some(inside) => inside.send(answers).err().map(|refused| refused.0),
            None => Some(answers),
        };
        refused.into_iter().flatten().for_each(Answer::send);
    }

    /// One transaction for all, answered only once all are on the disk.
    fn write(&self, writer: &mut Writer, batch: Vec<Operation>, begun: bool) -> Vec<Answer> {
        if batch.is_empty() {
            return Vec::new();
        }
        let operations = batch.len() as u64;
        self.last_batch.store(batch.len(), Ordering::Relaxed);
        let commits = batch.iter().filter(|operation| matches!(operation, Operation::Commit(..))).count() as u64;
        let mut answers = Vec::with_capacity(batch.len());
        match writer.transact(batch, begun, &mut answers) {
            Ok(()) => {
                if !writer.board.recounted.is_empty() {
                    self.counts.publish(writer.board.recounted.drain());
                }
                self.stats.syncs.fetch_add(1, Ordering::Relaxed);
                self.stats.batches.fetch_add(1, Ordering::Relaxed);
                self.stats.operations.fetch_add(operations, Ordering::Relaxed);
                self.stats.commits.fetch_add(commits, Ordering::Relaxed);
            }
            Err(error) => {
                say_it_failed(&error, operations);
                answers.drain(..).for_each(|answer| answer.fail(&error));
            }
        }
        if self.wal_pages.load(Ordering::Relaxed) >= CHECKPOINT_PAGES {
            self.checkpoint(writer);
        }
        answers
    }

    fn checkpoint(&self, writer: &Writer) {
        let moved = writer.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = moved {
            abort_if_sync_failed(&error);
            tracing::warn!(%error, "the write-ahead log could not be moved into the database; it keeps growing");
        }
        // The log before its pages are copied, the database after, and the log's new header at the next commit.
        self.stats.syncs.fetch_add(3, Ordering::Relaxed);
        self.wal_pages.store(0, Ordering::Relaxed);
    }
}

impl Writer {
    /// Whether a transaction was begun; none when another program has locked the file. Any other trouble is the
    /// transaction's to find, which tells those who wait for it.
    fn begin_at_once(&self) -> Option<bool> {
        // Neither of the two can fail on an open connection.
        let _ = self.connection.busy_timeout(Duration::ZERO);
        let begun = self.execute("BEGIN IMMEDIATE");
        let _ = self.connection.busy_timeout(BUSY_TIMEOUT);
        match begun {
            Ok(()) => Some(true),
            Err(error) if is_locked(&error) => None,
            Err(_) => Some(false),
        }
    }

    fn transact(
        &mut self,
        batch: Vec<Operation>,
        begun: bool,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Arc<StoreError>> {
        let mut failed = if begun { None } else { self.execute("BEGIN IMMEDIATE").err() };
        for operation in batch {
            // Answers are collected even after a failure, because everybody is waiting for one.
            answers.push(self.perform(operation, &mut failed));
        }
        let outcome = match failed {
            None => self.execute("COMMIT"),
            Some(error) => Err(error),
        };
        outcome.map_err(|error| {
            abort_if_sync_failed(&error);
            // A failed COMMIT may have ended the transaction already; then there is nothing to roll back.
            let _ = self.connection.execute_batch("ROLLBACK");
            let error = unavailable("write")(error);
            match self.board.reload(&self.connection) {
                Ok(board) => self.board = board,
                Err(again) => tracing::error!(error = %again, "the store could not be read back after a failed write"),
            }
            Arc::new(error)
        })
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn perform(&mut self, operation: Operation, failed: &mut Option<rusqlite::Error>) -> Answer {
        macro_rules! answer {
            ($kind:ident, $reply:expr, $work:expr) => {{
                let result = if failed.is_some() { Ok(Err(None)) } else { $work.map(|result| result.map_err(Some)) };
                match result {
                    Ok(result) => Answer::$kind($reply, result),
                    Err(error) => {
                        *failed = Some(error);
                        Answer::$kind($reply, Err(None))
                    }
                }
            }};
        }
        match operation {
            Operation::Commit(commit, reply) => answer!(Commit, reply, self.commit(*commit)),
            Operation::Claim(request, reply) => answer!(Claim, reply, self.claim(request)),
            Operation::Submit(submission, reply) => answer!(Submit, reply, self.submit(*submission)),
            Operation::ChangePlan(change, reply) => answer!(ChangePlan, reply, self.change_plan(change)),
            Operation::Note(notes, reply) => answer!(Note, reply, self.note(notes)),
            Operation::PutToken(token, reply) => answer!(PutToken, reply, self.put_token(&token)),
            Operation::Import(plan, reply) => answer!(Import, reply, self.import(*plan)),
            Operation::ChangeBooks(change, reply) => answer!(ChangeBooks, reply, self.change_books(&change)),
        }
    }
}

/// Those who wait for it are told, and send it again: nothing is lost, least of all while another program has the file.
fn say_it_failed(error: &StoreError, operations: u64) {
    let locked = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<rusqlite::Error>())
        .is_some_and(is_locked);
    if locked {
        tracing::warn!(operations, "another program has locked the store's file; what is to be written waits for it");
    } else {
        tracing::error!(%error, operations, "a group of commits was rolled back; those who wait for it try again");
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked))
}

/// The outer error is the database's, and fails the whole group; the inner one is the caller's alone.
pub(super) type Performed<T> = rusqlite::Result<Result<T, StoreError>>;

/// An answer that waits for the group to be durable. `Err(None)`: it shares the group's failure.
enum Answer {
    Commit(Reply<Committed>, Result<Committed, Option<StoreError>>),
    Claim(Reply<Claimed>, Result<Claimed, Option<StoreError>>),
    Submit(Reply<Submitted>, Result<Submitted, Option<StoreError>>),
    ChangePlan(Reply<PlanRow>, Result<PlanRow, Option<StoreError>>),
    Note(Reply<()>, Result<(), Option<StoreError>>),
    PutToken(Reply<()>, Result<(), Option<StoreError>>),
    Import(Reply<()>, Result<(), Option<StoreError>>),
    ChangeBooks(Reply<()>, Result<(), Option<StoreError>>),
}

impl Answer {
    /// A caller that is gone does not want its answer any more.
    fn send(self) {
        fn give<T>(reply: Reply<T>, result: Result<T, Option<StoreError>>) {
            let result = result.map_err(|error| error.expect("a group that succeeded has no shared failure"));
            let _ = reply.send(result);
        }
        match self {
            Answer::Commit(reply, result) => give(reply, result),
            Answer::Claim(reply, result) => give(reply, result),
            Answer::Submit(reply, result) => give(reply, result),
            Answer::ChangePlan(reply, result) => give(reply, result),
            Answer::Note(reply, result)
            | Answer::PutToken(reply, result)
            | Answer::Import(reply, result)
            | Answer::ChangeBooks(reply, result) => give(reply, result),
        }
    }

    fn fail(self, error: &Arc<StoreError>) {
        fn give<T>(reply: Reply<T>, result: Result<T, Option<StoreError>>, error: &Arc<StoreError>) {
            // Its own rejection stands whatever became of the others.
            let own = result.err().flatten();
            let shared =
                || StoreError::Unavailable { backend: "sqlite", operation: "commit", source: error.clone().into() };
            let _ = reply.send(Err(own.unwrap_or_else(shared)));
        }
        match self {
            Answer::Commit(reply, result) => give(reply, result, error),
            Answer::Claim(reply, result) => give(reply, result, error),
            Answer::Submit(reply, result) => give(reply, result, error),
            Answer::ChangePlan(reply, result) => give(reply, result, error),
            Answer::Note(reply, result)
            | Answer::PutToken(reply, result)
            | Answer::Import(reply, result)
            | Answer::ChangeBooks(reply, result) => give(reply, result, error),
        }
    }
}

/// After a failed sync the kernel may have dropped what it could not write, so a second try would lie: stop here, and
/// let the next start read what really is on the disk.
fn abort_if_sync_failed(error: &rusqlite::Error) {
    const SYNC_FAILED: [i32; 2] = [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC];
    if let Some(failure) = error.sqlite_error()
        && SYNC_FAILED.contains(&failure.extended_code)
    {
        tracing::error!(%error, "the disk could not sync; stopping, because nothing after this could be trusted");
        std::process::exit(74);
    }
}

/// Poisoning is not inherited: a panic inside a transaction leaves it open, and the next one fails and reloads.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
