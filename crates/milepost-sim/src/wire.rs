//! One process's way to the store: a network that loses, delays and repeats.
//!
//! A call that was sent is on its own: it may arrive although its caller has given up, or is dead. On the way to a real
//! server the misfortunes are those of its proxy, and here it is only listened to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::{
    Answered, Beat, Beaten, Book, BookChange, ChangeQuery, Changes, ClaimRequest, Claimed, ClockReading, Commit,
    Committed, Entry, EntryQuery, EventQuery, Letter, LockRow, LogChunk, LogQuery, MovedPlan, NodeRow, Note, Page,
    PlanChange, PlanQuery, PlanRow, Position, Posted, Store, StoreError, StoreStats, StoredEvent, StoredTask,
    Submission, Submitted, TaskQuery, TaskRow, TokenRow,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::shared::Shared;
use crate::trace::words;

/// How long a caller waits for an answer before it takes the store to be away.
const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) struct Wire {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    /// None for a process that only looks and asks.
    pub(crate) node: Option<usize>,
    pub(crate) process: usize,
    /// How often its node was told that it had lost its lease.
    pub(crate) losses: Arc<AtomicU64>,
    /// It leads through a proxy, whose misfortunes are enough.
    pub(crate) is_proxied: bool,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the wire of #{}", self.process)
    }
}

type Answer<T> = Result<T, StoreError>;
/// A call as it arrives; it may arrive more than once.
type Arrives<T> = Arc<dyn Fn(Arc<dyn Store>) -> BoxFuture<'static, Answer<T>> + Send + Sync>;

/// Which of its misfortunes a call can meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Changes nothing.
    Read,
    Write,
    /// A real store finds out what became of a claim whose answer was lost, so its answer only comes late.
    Claim,
}

/// What becomes of one call.
struct Fate {
    /// When it arrives; never, if it is lost.
    there: Option<Duration>,
    /// How long after that its answer is back; never, if that is lost.
    back: Option<Duration>,
    /// How much later it arrives again.
    again: Option<Duration>,
}

impl Wire {
    fn fate(&self, kind: Kind) -> Option<Fate> {
        if self.is_proxied {
            return None;
        }
        let mut state = self.shared.state();
        let weather = &mut state.weather;
        let (network, slow) = (weather.network, weather.slowness());
        let closed = weather.closed_until(self.node);
        let quiet = network.latency_ms + network.lost + network.answer_lost + network.late + network.repeated == 0;
        if quiet && closed.is_none() && slow.is_zero() {
            return None;
        }
        let dice = &mut weather.dice;
        let mut way = || Duration::from_millis(dice.below(network.latency_ms + 1)) + slow / 2;
        let (mut there, mut back) = (Some(way()), Some(way()));
        if let Some(until) = closed {
            // Refused at once, or stuck on its way until the way is open.
            there =
                dice.chance(500).then(|| until.saturating_duration_since(Instant::now()) + there.unwrap_or_default());
        } else if dice.chance(network.lost) {
            there = None;
        } else if dice.chance(network.late) && kind != Kind::Claim {
            there = Some(PATIENCE + Duration::from_millis(dice.below(20_000)));
        }
        if dice.chance(network.answer_lost) {
            back = match kind {
                Kind::Claim => Some(Duration::from_millis(dice.below(20_000))),
                Kind::Read | Kind::Write => None,
            };
        }
        let repeated = kind == Kind::Write && dice.chance(network.repeated);
        let again = repeated.then(|| Duration::from_millis(dice.below(5_000)));
        Some(Fate { there, back, again })
    }

    async fn call<T: Send + 'static>(&self, operation: &'static str, kind: Kind, arrives: Arrives<T>) -> Answer<T> {
        let Some(fate) = self.fate(kind) else { return arrives(self.store.clone()).await };
        let Some(there) = fate.there else {
            self.shared.say(&self.who(), || format!("{operation} gets lost"));
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Err(away(operation));
        };
        let (sender, receiver) = oneshot::channel();
        let (store, shared, who) = (self.store.clone(), self.shared.clone(), self.who());
        tokio::spawn(async move {
            tokio::time::sleep(there).await;
            let answer = arrives(store.clone()).await;
            let sent = match fate.back {
                Some(back) => {
                    tokio::time::sleep(back).await;
                    sender.send(answer).is_ok()
                }
                None => false,
            };
            if !sent {
                shared.say(&who, || format!("the answer to {operation} gets lost"));
            }
            if let Some(again) = fate.again {
                tokio::time::sleep(again).await;
                shared.say(&who, || format!("{operation} arrives again"));
                let _ = arrives(store).await;
            }
        });
        let patience = if kind == Kind::Claim { Duration::from_secs(3600) } else { PATIENCE };
        match tokio::time::timeout(patience, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(away(operation)),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        arrives: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, Answer<T>> + Send + Sync + 'static,
    ) -> Answer<T> {
        self.call(operation, Kind::Read, Arc::new(arrives)).await
    }

    /// A write that the watch looks at as soon as it has arrived.
    async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        arrives: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, Answer<T>> + Send + Sync + 'static,
    ) -> Answer<T> {
        let (shared, who) = (self.shared.clone(), self.who());
        let looked_at = move |store: Arc<dyn Store>| {
            let (work, shared, who) = (arrives(store), shared.clone(), who.clone());
            async move {
                let answer = work.await;
                shared.say(&who, || match &answer {
                    Ok(_) => operation.to_owned(),
                    Err(error) => format!("{operation}: {error}"),
                });
                if !shared.by_log {
                    shared.look().await;
                }
                answer
            }
            .boxed()
        };
        self.call(operation, Kind::Write, Arc::new(looked_at)).await
    }

    fn who(&self) -> String {
        format!("#{}", self.process)
    }
}

fn away(operation: &'static str) -> StoreError {
    StoreError::Unavailable { backend: "the simulated store", operation, source: "no answer".into() }
}

#[async_trait]
impl Store for Wire {
    async fn submit(&self, submission: Submission) -> Answer<Submitted> {
        let shared = self.shared.clone();
        self.write("submit", move |store| {
            let (submission, shared) = (submission.clone(), shared.clone());
            async move {
                let held = shared.held().await;
                let submitted = store.submit(submission).await;
                shared.forget_removed(&held).await;
                submitted
            }
            .boxed()
        })
        .await
    }

    async fn claim(&self, request: ClaimRequest) -> Answer<Claimed> {
        let (shared, process) = (self.shared.clone(), self.process);
        let arrives = move |store: Arc<dyn Store>| {
            let (request, shared) = (request.clone(), shared.clone());
            async move {
                let claimed = store.claim(request).await;
                if let Ok(claimed) = &claimed {
                    for stored in claimed.tasks.iter().chain(&claimed.ended) {
                        let what = || {
                            format!(
                                "claims {} (lease {}): {}",
                                stored.key.id,
                                stored.epoch,
                                words(&stored.claim_events)
                            )
                        };
                        shared.say(&format!("#{process}"), what);
                    }
                    shared.claimed(process, claimed).await;
                }
                claimed
            }
            .boxed()
        };
        self.call("claim", Kind::Claim, Arc::new(arrives)).await
    }

    async fn commit(&self, commit: Commit) -> Answer<Committed> {
        let (shared, process) = (self.shared.clone(), self.process);
        let arrives = move |store: Arc<dyn Store>| {
            let (commit, shared) = (commit.clone(), shared.clone());
            async move {
                let (id, holder, events) = (commit.key.id.clone(), commit.holder, commit.events.clone());
                // One without events only gives the lease back, on whatever version that is.
                let on = (!events.is_empty()).then_some(commit.expected);
                let orphan = shared.is_orphan(&id, holder).await;
                let committed = store.commit(commit).await;
                shared.say(&format!("#{process}"), || match &committed {
                    Ok(_) => format!("commits {id} ({holder:?}): {}", words(&events)),
                    Err(error) => format!("commits {id}: {}: {error}", words(&events)),
                });
                if committed.is_ok() {
                    shared.committed(process, &id, holder, on, orphan).await;
                }
                committed
            }
            .boxed()
        };
        self.call("commit", Kind::Write, Arc::new(arrives)).await
    }

    async fn change_plan(&self, change: PlanChange) -> Answer<PlanRow> {
        self.write("change a plan", move |store| {
            let change = change.clone();
            async move { store.change_plan(change).await }.boxed()
        })
        .await
    }

    async fn note(&self, notes: Vec<Note>) -> Answer<()> {
        self.read("note", move |store| {
            let notes = notes.clone();
            async move { store.note(notes).await }.boxed()
        })
        .await
    }

    async fn plan(&self, id: &PlanId) -> Answer<Option<PlanRow>> {
        let id = id.clone();
        self.read("read a plan", move |store| {
            let id = id.clone();
            async move { store.plan(&id).await }.boxed()
        })
        .await
    }

    async fn definition(&self, id: &PlanId) -> Answer<Option<Plan>> {
        self.store.definition(id).await
    }

    async fn plans(&self, query: PlanQuery) -> Answer<Page<PlanRow>> {
        self.read("list plans", move |store| {
            let query = query.clone();
            async move { store.plans(query).await }.boxed()
        })
        .await
    }

    async fn task(&self, id: &TaskId) -> Answer<Option<StoredTask>> {
        let id = id.clone();
        self.read("read a task", move |store| {
            let id = id.clone();
            async move { store.task(&id).await }.boxed()
        })
        .await
    }

    async fn tasks(&self, query: TaskQuery) -> Answer<Page<TaskRow>> {
        self.read("list tasks", move |store| {
            let query = query.clone();
            async move { store.tasks(query).await }.boxed()
        })
        .await
    }

    async fn events(&self, query: EventQuery) -> Answer<Vec<StoredEvent>> {
        self.read("read a log", move |store| {
            let query = query.clone();
            async move { store.events(query).await }.boxed()
        })
        .await
    }

    async fn logs(&self, query: LogQuery) -> Answer<Vec<LogChunk>> {
        self.store.logs(query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Answer<Changes> {
        self.store.changes(query).await
    }

    async fn newest(&self) -> Answer<Position> {
        self.store.newest().await
    }

    async fn locks(&self) -> Answer<Vec<LockRow>> {
        self.store.locks().await
    }

    async fn tokens(&self) -> Answer<Vec<TokenRow>> {
        self.store.tokens().await
    }

    async fn put_token(&self, token: TokenRow) -> Answer<()> {
        self.store.put_token(token).await
    }

    async fn import(&self, plan: MovedPlan) -> Answer<()> {
        self.store.import(plan).await
    }

    async fn change_books(&self, change: BookChange) -> Answer<()> {
        self.write("change the books", move |store| {
            let change = change.clone();
            async move { store.change_books(change).await }.boxed()
        })
        .await
    }

    async fn entries(&self, query: EntryQuery) -> Answer<Page<Entry>> {
        self.store.entries(query).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Answer<Option<Entry>> {
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

    async fn beat(&self, beat: Beat) -> Answer<Beaten> {
        let (shared, who, told) = (self.shared.clone(), self.who(), self.losses.clone());
        self.read("beat", move |store| {
            let (shared, who, told) = (shared.clone(), who.clone(), told.clone());
            async move {
                let beaten = store.beat(beat).await;
                match &beaten {
                    Ok(Beaten { losses, .. }) if told.fetch_max(*losses, Ordering::Relaxed) < *losses => {
                        shared.say(&who, || "hears that it lost its lease".to_owned());
                    }
                    Ok(_) => {}
                    Err(error) => shared.say(&who, || format!("beat: {error}")),
                }
                beaten
            }
            .boxed()
        })
        .await
    }

    async fn leave(&self) -> Answer<()> {
        self.write("leave", |store| async move { store.leave().await }.boxed()).await
    }

    async fn nodes(&self) -> Answer<Vec<NodeRow>> {
        self.store.nodes().await
    }

    async fn post(&self, letter: Letter) -> Answer<Option<i64>> {
        self.write("post a letter", move |store| {
            let letter = letter.clone();
            async move { store.post(letter).await }.boxed()
        })
        .await
    }

    async fn letters(&self) -> Answer<Vec<Posted>> {
        self.read("read letters", |store| async move { store.letters().await }.boxed()).await
    }

    async fn answer(&self, letter: i64, answer: String) -> Answer<()> {
        self.write("answer a letter", move |store| {
            let answer = answer.clone();
            async move { store.answer(letter, answer).await }.boxed()
        })
        .await
    }

    async fn answer_to(&self, letter: i64) -> Answer<Answered> {
        self.read("look for an answer", move |store| async move { store.answer_to(letter).await }.boxed()).await
    }

    async fn call(&self) -> Answer<()> {
        self.write("call the others", |store| async move { store.call().await }.boxed()).await
    }

    async fn called(&self) {
        self.store.called().await;
        // Nobody is called through a wire that is cut.
        let closed = self.shared.state().weather.closed_until(self.node);
        if let Some(until) = closed
            && !self.is_proxied
        {
            tokio::time::sleep_until(until).await;
        }
    }
}
