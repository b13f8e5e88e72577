//! Opening a file, as its owner or to read it, and the trait on top of the parts beside this one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Semaphore, oneshot};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};
use crate::moved::MovedPlan;
use crate::store::Store;
use milepost_core::time::Timestamp;

use super::board::Board;
use super::codec::unavailable;
use super::counts::PlanCounts;
use super::mend::mend;
use super::owner::{OwnerLock, beside, is_owned};
use super::read::{Glance, Reader};
use super::schema;
use super::shared::SharedPlans;
use super::wal;
use super::writer::{Operation, Reply, WriterHandle};

/// Rows that are read on the caller's own thread.
const FEW: u64 = 256;

/// A store in one file.
pub struct SqliteStore {
    path: PathBuf,
    /// None when opened to read.
    writer: Option<WriterHandle>,
    readers: Arc<Readers>,
    // Given back last, when the writer has finished.
    owner: Mutex<Option<OwnerLock>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).field("owner", &self.writer.is_some()).finish()
    }
}

impl SqliteStore {
    /// Opens the file as its one owner, and makes it if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let owner = OwnerLock::acquire(&path)?;
        wal::check(&path)?;
        let mut connection = Connection::open(&path).map_err(unavailable("open the file"))?;
        let version = schema::check_format(&connection, &path.display().to_string())?;
        schema::configure_writer(&connection).map_err(unavailable("configure its connection"))?;
        schema::migrate(&mut connection, version).map_err(unavailable("bring the file to this version's format"))?;
        // Every lease taken before this is void from here on.
        connection
            .execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'", [])
            .map_err(unavailable("begin a new epoch"))?;
        mend(&connection).map_err(unavailable("look at the queue"))?;
        let board = Board::load(&connection)?;
        let readers = Readers::new(&path, Some(board.epoch));
        let writer = WriterHandle::start(connection, board, readers.counts.clone())?;
        Ok(Self { path, writer: Some(writer), readers, owner: Mutex::new(Some(owner)) })
    }

    /// Opens the file to read it, whoever owns it. It must exist.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let owned = is_owned(path);
        // Who only reads would drop what follows the damage as well, when it closes the file. A log that is being written
        // is its owner's, who looked at it first.
        if !owned
            && let Err(damage) = wal::check(path)
            && !is_owned(path)
        {
            return Err(damage);
        }
        // Without an owner no lease is alive.
        let live_epoch = (!owned).then_some(0);
        Self::read_only(path, live_epoch)
    }

    fn read_only(path: &Path, live_epoch: Option<u64>) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let missing = StoreError::NotFound { what: "store", id: name.clone() };
        if !path.exists() {
            return Err(missing);
        }
        let readers = Readers::new(path, live_epoch);
        let version = readers.with(|connection| schema::check_format(connection, &name))?;
        // An owner that was killed at once, or has only just begun, leaves a file without tables.
        if version == 0 {
            return Err(missing);
        }
        Ok(Self { path: path.to_owned(), writer: None, readers, owner: Mutex::default() })
    }

    /// Opens the file to read it while nobody owns it, and lets nobody own it meanwhile; changes nothing in it.
    pub fn open_to_move(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(StoreError::NotFound { what: "store", id: path.display().to_string() });
        }
        let owner = OwnerLock::acquire(path)?;
        wal::check(path)?;
        let store = Self::read_only(path, Some(0))?;
        *store.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(owner);
        Ok(store)
    }

    /// Finishes what is queued and lets go of the file; later writes are refused.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close();
        }
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Where the owner listens for the verbs of other processes.
    pub fn socket_path(path: impl AsRef<Path>) -> PathBuf {
        beside(path.as_ref(), "sock")
    }

    async fn write<T>(&self, operation: impl FnOnce(Reply<T>) -> Operation) -> Result<T, StoreError> {
        let refused = |why: &str| StoreError::Unavailable { backend: "sqlite", operation: "write", source: why.into() };
        let writer = self.writer.as_ref().ok_or_else(|| refused("the file was opened to read it"))?;
        let (reply, answer) = oneshot::channel();
        writer.send(operation(reply)).await;
        answer.await.unwrap_or_else(|_| Err(refused("it was closed, or its writer panicked; the log says which")))
    }

    /// Reads on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.readers.clone();
        let turn = readers.turns.clone().acquire_owned().await;
        let answer = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            readers.ask(question)
        });
        answer.await.unwrap_or_else(|error| {
            Err(StoreError::Unavailable { backend: "sqlite", operation: "read", source: error.into() })
        })
    }

    /// Looks at one thing. A few rows are read right here: they take some microseconds, which is less than two hops to
    /// another thread do, and no longer than what the runtime's own threads do anyway. What is larger, or finds every
    /// connection in use, is read where it may take its time.
    async fn look_at<T: Send + 'static>(
        &self,
        question: impl Fn(&Reader<'_>, u64) -> Result<Glance<T>, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let here = self.readers.turns.try_acquire().ok().map(|_turn| self.readers.ask(|reader| question(reader, FEW)));
        match here {
            Some(Ok(Glance::Saw(answer))) => return Ok(answer),
            Some(Err(error)) => return Err(error),
            Some(Ok(Glance::TooMuch)) | None => {}
        }
        match self.read(move |reader| question(reader, u64::MAX)).await? {
            Glance::Saw(answer) => Ok(answer),
            Glance::TooMuch => unreachable!("nothing is too much for a look without bounds"),
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        let submission = Box::new(submission.into());
        self.write(|reply| Operation::Submit(submission, reply)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.write(|reply| Operation::Claim(request, reply)).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let commit = Box::new(commit.into());
        self.write(|reply| Operation::Commit(commit, reply)).await
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        self.write(|reply| Operation::ChangePlan(change, reply)).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.write(|reply| Operation::Note(notes, reply)).await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        let id = id.clone();
        self.look_at(move |reader, most| reader.plan(&id, most)).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        let id = id.clone();
        self.read(move |reader| reader.definition(&id)).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.read(move |reader| reader.plans(&query)).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let id = id.clone();
        self.look_at(move |reader, most| reader.task(&id, most)).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        // A search for some states may pass over any number of tasks before it finds a few.
        if query.statuses.is_empty() && query.limit as u64 <= FEW {
            return self.look_at(move |reader, _| reader.tasks(&query).map(Glance::Saw)).await;
        }
        self.read(move |reader| reader.tasks(&query)).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(move |reader| reader.events(&query)).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.read(move |reader| reader.logs(&query)).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.read(move |reader| reader.changes(&query)).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        self.look_at(|reader, _| reader.newest().map(Glance::Saw)).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read(|reader| reader.tokens()).await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        let token = Box::new(token);
        self.write(|reply| Operation::PutToken(token, reply)).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        let plan = Box::new(plan);
        self.write(|reply| Operation::Import(plan, reply)).await
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        self.read(|reader| reader.locks()).await
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        self.write(|reply| Operation::ChangeBooks(change, reply)).await
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        self.read(move |reader| reader.entries(&query)).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let key = key.to_owned();
        self.look_at(move |reader, _| reader.entry(book, &key, now).map(Glance::Saw)).await
    }

    fn stats(&self) -> StoreStats {
        self.writer.as_ref().map(WriterHandle::stats).unwrap_or_default()
    }
}

/// Connections that read, kept for the next question.
#[derive(Debug)]
struct Readers {
    path: PathBuf,
    live_epoch: Option<u64>,
    counts: Arc<PlanCounts>,
    plans: SharedPlans,
    idle: Mutex<Vec<Connection>>,
    /// Nobody closes it, so a turn always comes.
    turns: Arc<Semaphore>,
}

impl Readers {
    /// Questions answered at once, and connections kept for them; more would cost memory and no core would be free.
    const AT_ONCE: usize = 8;

    fn new(path: &Path, live_epoch: Option<u64>) -> Arc<Self> {
        let turns = Arc::new(Semaphore::new(Self::AT_ONCE));
        Arc::new(Self {
            path: path.to_owned(),
            live_epoch,
            counts: Arc::default(),
            plans: SharedPlans::default(),
            idle: Mutex::default(),
            turns,
        })
    }

    /// One question is one snapshot, however many statements it takes.
    fn ask<T>(&self, question: impl FnOnce(&Reader<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let run = |connection: &Connection, sql: &str| connection.prepare_cached(sql)?.execute([]).map(|_| ());
        self.with(|connection| {
            run(connection, "BEGIN").map_err(unavailable("begin to read"))?;
            let Self { live_epoch, counts, plans, .. } = self;
            let answer = question(&Reader { connection, live_epoch: *live_epoch, counts, plans });
            run(connection, "COMMIT").map_err(unavailable("end reading"))?;
            answer
        })
    }

    /// A connection that is in the middle of something when its question fails is not kept.
    fn with<T>(&self, question: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(unavailable("open the file to read it"))?,
        };
        let answer = question(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < Self::AT_ONCE && connection.is_autocommit() {
            idle.push(connection);
        }
        answer
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        // Not read-only to SQLite: the first reader after a crash has to recover the write-ahead log.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        schema::configure_reader(&connection)?;
        Ok(connection)
    }
}
