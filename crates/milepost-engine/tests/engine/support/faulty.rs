//! A store that answers as the test says, and otherwise as the real one behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::{
    Answered, Beat, Beaten, Book, BookChange, ChangeQuery, Changes, ClaimRequest, Claimed, ClockReading, Commit,
    Committed, Entry, EntryQuery, EventQuery, Letter, LockRow, LogChunk, LogQuery, MovedPlan, NodeRow, Note, Page,
    PlanChange, PlanQuery, PlanRow, Position, Posted, Store, StoreError, StoreStats, StoredEvent, StoredTask,
    Submission, Submitted, TaskQuery, TaskRow, TokenRow,
};
use tokio::sync::Notify;

/// What becomes of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Answers {
    #[default]
    Truly,
    /// The store is away: nothing gets through.
    Away,
    /// Commits are made, and their answers are lost.
    Forgets,
    /// A commit that ends a task is the last for which the store is there.
    AwayOnceEnded,
    /// Another node has every task.
    Fences,
    /// The next commit is refused, and not for the lease.
    RefusesOnce,
    /// The same, and the answer to the one after it is lost.
    RefusesOnceAndForgetsOnce,
    /// The next commit is made, and its answer is lost.
    ForgetsOnce,
    /// The node is cut off: whatever it asks for is done when it is let through again, if at all.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Faulty {
    store: Arc<dyn Store>,
    answers: Mutex<Answers>,
    damaged: Mutex<Option<TaskId>>,
    tenants_are_free: Mutex<bool>,
    /// Tasks look as if their node were gone, until it beats.
    looks_gone: Mutex<bool>,
    beats_take: Mutex<Duration>,
    forgets_a_beat: Mutex<bool>,
    /// How long commits and claims take.
    slowness: Mutex<(Duration, Duration)>,
    /// How many more commits are made before another node has every task.
    commits_left: Mutex<Option<usize>>,
    /// How long it takes until letters that were read arrive.
    letters_take: Mutex<Duration>,
    /// Answers to letters do not get through.
    swallows_answers: Mutex<bool>,
    calls: Mutex<usize>,
    last_change: Mutex<Option<PlanChange>>,
    refused: Notify,
    /// The answers have changed.
    changed: Notify,
}

impl Faulty {
    pub(crate) fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            answers: Mutex::default(),
            damaged: Mutex::default(),
            tenants_are_free: Mutex::default(),
            looks_gone: Mutex::default(),
            beats_take: Mutex::default(),
            forgets_a_beat: Mutex::default(),
            slowness: Mutex::default(),
            commits_left: Mutex::default(),
            letters_take: Mutex::default(),
            swallows_answers: Mutex::default(),
            calls: Mutex::default(),
            last_change: Mutex::default(),
            refused: Notify::new(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
        self.changed.notify_waiters();
    }

    /// Waits until the node is let through.
    async fn passes(&self) {
        loop {
            let changed = self.changed.notified();
            if self.now() != Answers::Hangs {
                return;
            }
            changed.await;
        }
    }

    async fn reaches(&self, operation: &'static str) -> Result<(), StoreError> {
        self.passes().await;
        if self.now() == Answers::Away { Err(self.away(operation)) } else { Ok(()) }
    }

    /// This task can no longer be read.
    pub(crate) fn damage(&self, task: TaskId) {
        *self.damaged.lock().unwrap() = Some(task);
    }

    /// Whoever asks for locks finds none, as if all had been given back since they looked at a task.
    pub(crate) fn frees_tenants(&self) {
        *self.tenants_are_free.lock().unwrap() = true;
    }

    /// Until the next beat, whoever reads a task finds that its lease has run out, as nobody has judged yet.
    pub(crate) fn looks_gone_until_it_beats(&self) {
        *self.looks_gone.lock().unwrap() = true;
    }

    /// So many commits are made; the node that makes them hears no more of the store after that.
    pub(crate) fn dies_after(&self, commits: usize) {
        *self.commits_left.lock().unwrap() = Some(commits);
    }

    /// Every commit and every submission takes this long from now on.
    pub(crate) fn commits_take(&self, time: Duration) {
        self.slowness.lock().unwrap().0 = time;
    }

    pub(crate) fn beats_take(&self, time: Duration) {
        *self.beats_take.lock().unwrap() = time;
    }

    /// The next beat arrives, and its answer is lost.
    pub(crate) fn forgets_a_beat(&self) {
        *self.forgets_a_beat.lock().unwrap() = true;
    }

    pub(crate) fn letters_take(&self, time: Duration) {
        *self.letters_take.lock().unwrap() = time;
    }

    pub(crate) fn swallows_answers(&self, swallows: bool) {
        *self.swallows_answers.lock().unwrap() = swallows;
    }

    /// How often others were called for what the node cannot do.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    /// The network repeats the last change of a plan.
    pub(crate) async fn last_change_arrives_again(&self) -> Result<PlanRow, StoreError> {
        let change = self.last_change.lock().unwrap().clone().expect("a plan was changed");
        awake(self.store.change_plan(change)).await
    }

    pub(crate) fn claims_take(&self, time: Duration) {
        self.slowness.lock().unwrap().1 = time;
    }

    /// Waits until a write was not answered truly.
    pub(crate) async fn refused(&self) {
        super::bounded("a refused write", self.refused.notified()).await;
    }

    fn now(&self) -> Answers {
        *self.answers.lock().unwrap()
    }

    fn away(&self, operation: &'static str) -> StoreError {
        self.refused.notify_one();
        StoreError::Unavailable { backend: "test", operation, source: "it is away".into() }
    }
}

/// Keeps the paused clock from running ahead while the writer's own thread is at work, which tokio cannot see.
async fn awake<T>(work: impl Future<Output = T>) -> T {
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || waiting.recv());
    let answer = work.await;
    drop(done);
    answer
}

#[async_trait]
impl Store for Faulty {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.reaches("submit").await?;
        let slowness = self.slowness.lock().unwrap().0;
        tokio::time::sleep(slowness).await;
        awake(self.store.submit(submission)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.reaches("claim").await?;
        let slowness = self.slowness.lock().unwrap().1;
        tokio::time::sleep(slowness).await;
        awake(self.store.claim(request)).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let task = commit.key.id.clone();
        self.passes().await;
        let slowness = self.slowness.lock().unwrap().0;
        tokio::time::sleep(slowness).await;
        if let Some(left) = self.commits_left.lock().unwrap().as_mut() {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => self.answer(Answers::Fences),
            }
        }
        match self.now() {
            Answers::Truly | Answers::Hangs => awake(self.store.commit(commit)).await,
            Answers::AwayOnceEnded => {
                let ends = commit.task.status().is_ended();
                let committed = awake(self.store.commit(commit)).await;
                if ends {
                    self.answer(Answers::Away);
                }
                committed
            }
            Answers::Away => Err(self.away("commit")),
            Answers::Forgets => {
                awake(self.store.commit(commit)).await?;
                Err(self.away("commit"))
            }
            Answers::Fences => {
                self.refused.notify_one();
                Err(StoreError::Fenced { task, expected: 1, found: 2 })
            }
            Answers::ForgetsOnce => {
                self.answer(Answers::Truly);
                awake(self.store.commit(commit)).await?;
                Err(self.away("commit"))
            }
            answers @ (Answers::RefusesOnce | Answers::RefusesOnceAndForgetsOnce) => {
                let forgets = answers == Answers::RefusesOnceAndForgetsOnce;
                self.answer(if forgets { Answers::ForgetsOnce } else { Answers::Truly });
                Err(StoreError::Damaged { what: format!("task {task}"), detail: "says the test".to_owned() })
            }
        }
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        *self.last_change.lock().unwrap() = Some(change.clone());
        awake(self.store.change_plan(change)).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.reaches("note").await?;
        awake(self.store.note(notes)).await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        self.store.plan(id).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        self.store.definition(id).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.store.plans(query).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        self.passes().await;
        let mut stored = self.store.task(id).await?;
        if let Some(stored) = stored.as_mut().filter(|_| self.damaged.lock().unwrap().as_ref() == Some(id)) {
            stored.task.mark_damaged("the test says so");
        }
        if self.now() == Answers::Fences {
            stored.iter_mut().for_each(|stored| stored.epoch += 1);
        }
        if *self.looks_gone.lock().unwrap() {
            stored.iter_mut().for_each(|stored| stored.orphaned = stored.epoch > 0);
        }
        Ok(stored)
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        self.store.tasks(query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.store.events(query).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.store.logs(query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.store.changes(query).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        self.store.newest().await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.store.tokens().await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.store.put_token(token).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.store.import(plan).await
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        if *self.tenants_are_free.lock().unwrap() {
            return Ok(Vec::new());
        }
        self.store.locks().await
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        self.reaches("change the books").await?;
        awake(self.store.change_books(change)).await
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        self.store.entries(query).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        self.store.entry(book, key, now).await
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn clock(&self) -> Option<ClockReading> {
        self.store.clock()
    }

    async fn beat(&self, beat: Beat) -> Result<Beaten, StoreError> {
        self.reaches("beat").await?;
        let slowness = *self.beats_take.lock().unwrap();
        tokio::time::sleep(slowness).await;
        let beaten = self.store.beat(beat).await;
        *self.looks_gone.lock().unwrap() = false;
        if std::mem::take(&mut *self.forgets_a_beat.lock().unwrap()) {
            return Err(self.away("beat"));
        }
        beaten
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.store.leave().await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.store.nodes().await
    }

    async fn post(&self, letter: Letter) -> Result<Option<i64>, StoreError> {
        self.reaches("post").await?;
        self.store.post(letter).await
    }

    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        self.reaches("read letters").await?;
        let letters = self.store.letters().await;
        let slowness = *self.letters_take.lock().unwrap();
        if !slowness.is_zero() {
            tokio::time::sleep(slowness).await;
        }
        letters
    }

    async fn answer(&self, letter: i64, answer: String) -> Result<(), StoreError> {
        self.reaches("answer").await?;
        if *self.swallows_answers.lock().unwrap() {
            return Err(self.away("answer"));
        }
        self.store.answer(letter, answer).await
    }

    async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        self.store.answer_to(letter).await
    }

    async fn call(&self) -> Result<(), StoreError> {
        self.reaches("call").await?;
        *self.calls.lock().unwrap() += 1;
        self.store.call().await
    }

    async fn called(&self) {
        self.store.called().await;
    }
}
