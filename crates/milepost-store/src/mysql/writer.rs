//! Group commit: whatever waits to be written goes to the server in one transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mysql_async::Error;
use tokio::sync::oneshot;

use crate::books::{BookChange, Entry};
use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, Committed, Note, PlanChange, PlanRow, Submitted, TokenRow};
use crate::moved::MovedPlan;

use super::begin::{Turn, Wanted};
use super::codec::{BACKEND, unavailable};
use super::commit::EncodedCommit;
use super::connect::{is_collision, is_goodbye};
use super::store::Shared;
use super::submit::EncodedSubmission;

/// Larger groups add latency and no speed.
pub(super) const MOST: usize = 1024;
/// Collisions are rare here, because all take the same lock first; a server in trouble may still report some.
const TRIES: u32 = 5;

/// One thing to write.
#[derive(Debug)]
pub(super) enum Operation {
    Commit(Box<EncodedCommit>),
    Note(Vec<Note>),
    Submit(Box<EncodedSubmission>),
    ChangePlan(PlanChange),
    PutToken(Box<TokenRow>),
    ChangeBooks(BookChange),
    Claim(ClaimRequest),
    Import(Box<MovedPlan>),
    /// Ends what has run out and renews what has not.
    Sweep,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Done {
    Committed(Committed),
    Submitted(Submitted),
    Changed(PlanRow),
    Claimed(Claimed),
    Written,
}

/// An operation, and where its answer goes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Done, StoreError>>,
}

type Outcome = Result<Done, StoreError>;

/// How far a transaction got before it failed.
enum Failed {
    /// It was never committed.
    Before(Error),
    /// The commit was on its way: nobody knows.
    Unknown(Error),
}

/// Writes a group and answers everybody. It runs in a task of its own: no caller that goes away cuts it off half way.
pub(super) async fn write(shared: Arc<Shared>, group: Vec<Waiting>) {
    let (operations, replies): (Vec<_>, Vec<_>) =
        group.into_iter().map(|waiting| (waiting.operation, waiting.reply)).unzip();
    let error = match write_all(&shared, &operations).await {
        Ok(outcomes) => {
            // Whoever is answered has its task to itself again, and need not copy it.
            drop(operations);
            replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| answer(&shared, reply, outcome));
            return;
        }
        Err(Failed::Before(error @ Error::Server(_))) if operations.len() > 1 && !is_goodbye(&error) => {
            tracing::warn!(%error, "a group of commits was refused; each is tried alone, so that one fails and not all");
            for (operation, reply) in operations.into_iter().zip(replies) {
                let alone = write_all(&shared, std::slice::from_ref(&operation)).await;
                let outcome = match alone {
                    Ok(mut outcomes) => outcomes.pop().expect("one operation has one outcome"),
                    Err(Failed::Before(error) | Failed::Unknown(error)) => Err(unavailable("write")(error)),
                };
                answer(&shared, reply, outcome);
            }
            return;
        }
        Err(Failed::Before(error) | Failed::Unknown(error)) => error,
    };
    tracing::warn!(%error, "a group of commits could not be written");
    let error = Arc::new(unavailable("write")(error));
    for reply in replies {
        let source = error.clone().into();
        let _ = reply.send(Err(StoreError::Unavailable { backend: BACKEND, operation: "commit", source }));
    }
}

/// A caller that is gone does not want its answer any more; but tasks that it claimed have to come to somebody.
fn answer(shared: &Shared, reply: oneshot::Sender<Outcome>, outcome: Outcome) {
    if let Err(Ok(Done::Claimed(unheard))) = reply.send(outcome) {
        shared.doubtful.keep(unheard.tasks);
    }
}

async fn write_all(shared: &Arc<Shared>, operations: &[Operation]) -> Result<Vec<Outcome>, Failed> {
    let mut tries = 0;
    loop {
        tries += 1;
        match transact(shared, operations).await {
            Ok(outcomes) => {
                count(shared, operations);
                return Ok(outcomes);
            }
            Err(Failed::Before(error)) if tries < TRIES && is_collision(&error) => {
                tracing::debug!(%error, tries, "a group of commits is tried again");
            }
            // The connection may have died while nobody used it.
            Err(Failed::Before(error)) if tries == 1 && (error.is_fatal() || is_goodbye(&error)) => {
                tracing::debug!(%error, "a group of commits is tried again on a new connection");
            }
            Err(failed) => return Err(failed),
        }
    }
}

fn count(shared: &Shared, operations: &[Operation]) {
    let commits = operations.iter().filter(|operation| matches!(operation, Operation::Commit(_))).count();
    shared.stats.batches.fetch_add(1, Ordering::Relaxed);
    shared.stats.operations.fetch_add(operations.len() as u64, Ordering::Relaxed);
    shared.stats.commits.fetch_add(commits as u64, Ordering::Relaxed);
}

async fn transact(shared: &Arc<Shared>, operations: &[Operation]) -> Result<Vec<Outcome>, Failed> {
    let kept = shared.writer.lock().await.take();
    let connection = match kept {
        Some(connection) => connection,
        None => shared.server.connect().await.map_err(Failed::Before)?,
    };
    let wanted = wanted(operations);
    let (mut turn, answers) = Turn::begin(shared.clone(), connection, wanted).await.map_err(Failed::Before)?;
    let offered = turn.desk.flushed.offered;
    // What fails from here on is rolled back with its connection, which is not kept.
    let mut outcomes = turn.perform(operations, answers).await.map_err(Failed::Before)?;
    turn.commit().await.map_err(|error| match &error {
        Error::Server(_) if !is_goodbye(&error) => Failed::Before(error),
        _ => {
            let claims = outcomes.drain(..).filter_map(|outcome| match outcome {
                Ok(Done::Claimed(claimed)) => Some(claimed.tasks),
                _ => None,
            });
            shared.doubtful.keep(claims.flatten());
            Failed::Unknown(error)
        }
    })?;
    shared.watch.own_offer(offered, turn.desk.flushed.offered);
    if turn.desk.ends_a_session {
        shared.watch.call();
    }
    *shared.writer.lock().await = Some(turn.connection);
    Ok(outcomes)
}

fn wanted(operations: &[Operation]) -> Wanted {
    let mut wanted = Wanted::default();
    for operation in operations {
        match operation {
            Operation::Commit(commit) => {
                wanted.tasks.insert(commit.key.no);
            }
            Operation::Note(notes) => wanted.tasks.extend(notes.iter().map(|note| note.key.no)),
            Operation::Submit(_)
            | Operation::ChangePlan(_)
            | Operation::PutToken(_)
            | Operation::ChangeBooks(_)
            | Operation::Claim(_)
            | Operation::Import(_)
            | Operation::Sweep => {}
        }
    }
    let submissions = operations.iter().filter_map(|operation| match operation {
        Operation::Submit(submission) => Some(&**submission),
        _ => None,
    });
    wanted.questions = super::known::questions(submissions);
    wanted.books = super::books::questions(operations.iter().flat_map(entries_of));
    wanted
}

/// What the operation is to write to the books, as far as it says so beforehand.
fn entries_of(operation: &Operation) -> &[Entry] {
    match operation {
        Operation::Commit(commit) => &commit.books.keep,
        Operation::Submit(submission) => &submission.books.keep,
        Operation::ChangeBooks(change) => &change.keep,
        Operation::Note(_)
        | Operation::ChangePlan(_)
        | Operation::PutToken(_)
        | Operation::Claim(_)
        | Operation::Import(_)
        | Operation::Sweep => &[],
    }
}

impl Turn {
    /// Commits first, all of them in one go; then what has to look at the tables by itself. They arrived together, so
    /// any order of them is a true one.
    async fn perform(
        &mut self,
        operations: &[Operation],
        answers: Vec<Vec<mysql_async::Row>>,
    ) -> Result<Vec<Outcome>, Error> {
        let mut outcomes: Vec<Option<Outcome>> = operations.iter().map(|_| None).collect();
        let refused = !self.may_write();
        for (operation, outcome) in operations.iter().zip(&mut outcomes) {
            *outcome = match operation {
                Operation::Commit(commit) => Some(self.commit_one(commit).map(Done::Committed)),
                Operation::Note(notes) if !refused => {
                    self.note(notes);
                    Some(Ok(Done::Written))
                }
                Operation::ChangeBooks(change) if !refused => {
                    Some(self.desk.change_books(change).map(|()| Done::Written))
                }
                _ if refused => Some(Err(lost_session())),
                _ => None,
            };
        }
        if !self.desk.freed.is_empty() {
            self.wake_next_in_line().await?;
        }
        let mut known = super::known::Known::read(answers)?;
        for (operation, outcome) in operations.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
            *outcome = Some(match operation {
                Operation::Submit(submission) => self.submit(submission, &mut known).await?.map(Done::Submitted),
                Operation::ChangePlan(change) => self.change_plan(change).await?.map(Done::Changed),
                Operation::PutToken(token) => {
                    self.put_token(token);
                    Ok(Done::Written)
                }
                Operation::Claim(request) => self.claim(request).await?.map(Done::Claimed),
                Operation::Import(plan) => self.import(plan).await?.map(|()| Done::Written),
                Operation::Sweep => {
                    self.sweep().await?;
                    Ok(Done::Written)
                }
                Operation::Commit(_) | Operation::Note(_) | Operation::ChangeBooks(_) => {
                    unreachable!("these were performed above")
                }
            });
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.expect("every operation has been performed")).collect())
    }
}

fn lost_session() -> StoreError {
    let source = "this node's lease has run out, or another process has its name".into();
    StoreError::Unavailable { backend: BACKEND, operation: "write", source }
}
