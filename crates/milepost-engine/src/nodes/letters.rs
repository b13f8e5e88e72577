//! Asking the node that holds a task, and doing what others ask of the tasks that are held here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use milepost_core::id::TaskId;
use milepost_core::task::TaskStatus;
use milepost_store::{Answered, Letter, Posted, StoreError};
use tokio::time::Instant;

use super::words::{Question, Reply};
use crate::engine::Inner;
use crate::runner::chain;
use crate::verbs::{Asked, VerbError};

/// A node that has not answered by then does not answer; what was asked may still be done.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// An answer is looked for this often, also when nobody calls.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Many ask at once when a plan is paused: after a call they wait for the other answers, and look once.
const GATHER_FOR: Duration = Duration::from_millis(20);
/// After the node that was asked is gone, its answer may still be on its way.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(3);
/// A node that has no room this long after it took something in has none for it.
const FULL_FOR: Duration = Duration::from_millis(500);

/// How far this node has come with a letter. What was asked is done once, however often the letter is found.
#[derive(Debug)]
pub(super) enum Dealt {
    UnderWay,
    /// It is done, and the store could not be told.
    Unsent(String),
    /// A look that began before may still find it.
    Answered,
}

/// What is left to do about a letter.
enum Left {
    All(Letter),
    Reply(String),
}

impl Inner {
    /// Puts a command to the live node that holds the task, and waits for its answer.
    pub(crate) async fn ask_holder(self: &Arc<Self>, task: &TaskId, asked: &Asked) -> Result<TaskStatus, VerbError> {
        let Some(question) = Question::new(&asked.command, asked.expected) else { return Err(VerbError::Moved) };
        let body = serde_json::to_string(&question).map_err(|error| VerbError::Refused(error.to_string()))?;
        self.listen();
        // A visitor too: the node may be gone, and somebody has to find out.
        self.begin_to_beat();
        let Some(letter) = self.store.post(Letter { id: self.new_id(), task: task.clone(), body }).await? else {
            return Err(VerbError::Moved);
        };
        let asked_at = Instant::now();
        let mut gone_at: Option<Instant> = None;
        loop {
            let mut called = pin!(self.membership.called.notified());
            // Registered before the look, so that no call between the two is missed.
            called.as_mut().enable();
            match self.store.answer_to(letter).await? {
                Answered::With(answer) => return read(&answer),
                Answered::NotYet => {}
                Answered::Never => _ = gone_at.get_or_insert_with(Instant::now),
            }
            if asked_at.elapsed() > ANSWERED_WITHIN {
                return Err(no_answer());
            }
            if gone_at.is_some_and(|gone_at| gone_at.elapsed() > LAST_WORDS_WITHIN) {
                return Err(VerbError::InDoubt(None));
            }
            tokio::select! {
                biased;
                () = called => tokio::time::sleep(GATHER_FOR).await,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Begins to hear what other processes leave for this one.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.membership.begins_to_listen() {
            self.spawn_beside(listen_loop(self.clone()));
        }
    }

    /// What this node has taken in, it runs by preference, and nobody else was called for it. Where it turns out to have no
    /// room, others are; once for all that has come in meanwhile, and once more if the last of it had no time to be claimed.
    pub(crate) fn call_others_if_full(self: &Arc<Self>) {
        if !self.membership.is_shared() || self.membership.taken_in.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let inner = self.clone();
        self.spawn(async move {
            let taken_in = &inner.membership.taken_in;
            loop {
                let known = taken_in.load(Ordering::Acquire);
                inner.rest(FULL_FOR).await;
                if inner.is_full()
                    && let Err(error) = inner.store.call().await
                {
                    tracing::debug!(error = %chain(&error), "the other nodes could not be called");
                }
                if taken_in.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    break;
                }
            }
        });
    }

    fn open_letters(&self) -> MutexGuard<'_, HashMap<i64, Dealt>> {
        self.membership.open_letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_letters(self: &Arc<Self>) {
        // What was answered before it begins, a look does not find.
        self.open_letters().retain(|_, dealt| !matches!(dealt, Dealt::Answered));
        let letters = match self.store.letters().await {
            Ok(letters) => letters,
            Err(error) => return tracing::debug!(error = %chain(&error), "letters could not be read"),
        };
        let found: HashSet<i64> = letters.iter().map(|posted| posted.no).collect();
        // The store has forgotten it, or has the answer after all.
        self.open_letters().retain(|no, dealt| !matches!(dealt, Dealt::Unsent(_)) || found.contains(no));
        for Posted { no, letter } in letters {
            let Some(left) = self.take_up(no, letter) else { continue };
            let inner = self.clone();
            self.spawn(async move {
                let reply = match left {
                    Left::All(letter) => inner.deal_with(letter).await,
                    Left::Reply(reply) => reply,
                };
                inner.reply(no, reply).await;
            });
        }
    }

    fn take_up(&self, no: i64, letter: Letter) -> Option<Left> {
        match self.open_letters().entry(no) {
            Entry::Vacant(new) => {
                new.insert(Dealt::UnderWay);
                Some(Left::All(letter))
            }
            Entry::Occupied(mut known) => match std::mem::replace(known.get_mut(), Dealt::UnderWay) {
                Dealt::Unsent(reply) => Some(Left::Reply(reply)),
                before @ (Dealt::UnderWay | Dealt::Answered) => {
                    known.insert(before);
                    None
                }
            },
        }
    }

    async fn deal_with(self: &Arc<Self>, letter: Letter) -> String {
        let done = match Question::read(&letter.body) {
            Ok((command, expected)) => match self.runner(&letter.task) {
                Some(runner) => self.order(&runner, command, expected).await,
                None => Err(VerbError::Moved),
            },
            Err(error) => Err(error),
        };
        serde_json::to_string(&Reply::from(done)).unwrap_or_default()
    }

    async fn reply(&self, no: i64, reply: String) {
        // It is done, and whoever asked waits for so long.
        let until = Instant::now() + ANSWERED_WITHIN;
        while let Err(error) = self.store.answer(no, reply.clone()).await {
            tracing::debug!(error = %chain(&error), "a letter could not be answered");
            if !matches!(error, StoreError::Unavailable { .. }) || Instant::now() > until {
                self.open_letters().insert(no, Dealt::Unsent(reply));
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.open_letters().insert(no, Dealt::Answered);
    }
}

async fn listen_loop(inner: Arc<Inner>) {
    loop {
        inner.read_letters().await;
        tokio::select! {
            biased;
            () = inner.membership.gone.cancelled() => return,
            () = inner.store.called() => {}
        }
        inner.wake();
        inner.membership.called.notify_waiters();
    }
}

fn read(answer: &str) -> Result<TaskStatus, VerbError> {
    let reply: Reply = serde_json::from_str(answer)
        .map_err(|error| VerbError::Refused(format!("the answer of another node was not understood: {error}")))?;
    reply.into()
}

fn no_answer() -> VerbError {
    VerbError::Store(StoreError::Unavailable {
        backend: "the node that holds the task",
        operation: "answer",
        source: format!("no word of it for {} s", ANSWERED_WITHIN.as_secs()).into(),
    })
}
