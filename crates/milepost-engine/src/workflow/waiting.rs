//! A workflow between two turns: what can wake it, what can be asked of it, and when it is left to the store.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use milepost_core::failure::Failure;
use milepost_core::task::{Command, StageStatus, StepKind, TaskStatus, percent};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{LeaseChange, Note, Wake};
use serde_json::Value;

use crate::feed::FeedItem;
use crate::runner::{Order, WRITE_START_AFTER, sleep_until, sleep_until_past};
use crate::verbs::VerbError;

use super::child::open_children;
use super::desk::Desk;
use super::runner::{FlowRunner, Function, Over, meanwhile};

/// A parked parent looks at its children again after this long: the word of an end may have been lost with a node.
const CHILDREN_AGAIN: Millis = Millis::from_secs(300);
/// Far enough for a signal that has no deadline; whoever sends it wakes the workflow.
const FAR: Millis = Millis::from_secs(100 * 365 * 24 * 3600);
/// Progress goes out at most this often.
const REPORT_EVERY: Millis = Millis::new(250);

/// What there was to wait for.
enum Woken {
    /// The function may have something to say.
    Function,
    Order(Order),
    Stop,
    Due,
    Deadline,
    Park,
    Report,
    WriteStart,
    Lease,
    CutOff,
}

impl FlowRunner {
    pub(super) async fn wait(&mut self) -> Result<(), Over> {
        let waits_for_lease = self.waits_for_lease;
        let busy = self.is_busy() || waits_for_lease;
        let waits = !busy && self.flow().open().next().is_some();
        let now = self.now();
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        let due = if self.stopping { None } else { self.task.next_due() };
        let deadline = self.task.deadline();
        let park = self.waits_since.map(|since| self.park_at(since, [due, deadline].into_iter().flatten().min()));
        // One whose time is up has that to see to first; parked, it would be claimed again at once, without end.
        let time_is_up = deadline.is_some_and(|deadline| deadline <= now);
        if park.is_some_and(|park| park <= now) && !time_is_up {
            return self.park().await;
        }
        let report = self.report_at;
        let write_start = self.has_started_unwritten();
        let (clock, rest) = (&self.inner.clock, self.rest);
        // A workflow that only waits leaves its place on the node to others: to the children it waits for, say.
        let lent = waits.then(|| self.inner.lend());
        let woken = tokio::select! {
            biased;
            () = self.cut_off.comes() => Woken::CutOff,
            () = news(&mut self.function, &mut self.returned, &self.desk) => Woken::Function,
            Some(order) = self.orders.recv() => Woken::Order(order),
            () = self.inner.stop.cancelled(), if !self.stopping => Woken::Stop,
            () = self.inner.lease_renewed(), if waits_for_lease => Woken::Lease,
            () = sleep_until_past(clock, due, rest), if due.is_some() => Woken::Due,
            () = sleep_until(clock, deadline), if deadline.is_some() => Woken::Deadline,
            () = sleep_until(clock, park), if park.is_some() => Woken::Park,
            () = sleep_until(clock, report), if report.is_some() => Woken::Report,
            () = tokio::time::sleep(WRITE_START_AFTER), if write_start => Woken::WriteStart,
        };
        drop(lent);
        match woken {
            Woken::Function | Woken::Lease => Ok(()),
            Woken::Order(order) => self.obey(order).await,
            Woken::Stop => {
                self.stopping = true;
                Ok(())
            }
            Woken::Due => {
                self.rest = Duration::ZERO;
                self.must(Command::Wake);
                self.write_if_any().await
            }
            Woken::Deadline => {
                self.drop_function();
                self.must(Command::TimeOut);
                self.write_if_any().await
            }
            Woken::Park => self.park().await,
            Woken::WriteStart => self.write(LeaseChange::Keep).await,
            Woken::CutOff => Err(Over::Lost),
            Woken::Report => {
                self.report().await;
                Ok(())
            }
        }
    }

    /// Word of a signal or of a child may come any moment, so those are waited for a while; a long sleep is not, unless
    /// the workflow's own time is nearly up: by a clock that is a little behind the store's, it would be claimed for its
    /// deadline and given back over and over.
    fn park_at(&self, since: Timestamp, due: Option<Timestamp>) -> Timestamp {
        let flow = self.flow();
        let may_be_told = flow.open().any(|index| match flow.step(index).kind {
            StepKind::Signal { .. } | StepKind::Child { .. } => true,
            StepKind::Stage | StepKind::Sleep { .. } => false,
        });
        let park_after = self.inner.park_after();
        let far = due.is_none_or(|due| due.since(self.now()) > park_after);
        if far && !may_be_told { since } else { since + park_after }
    }

    /// Gives the lease back until something is due, or somebody says something.
    async fn park(&mut self) -> Result<(), Over> {
        let limits = [self.task.next_due(), self.task.deadline()];
        // A node that stops may not have come to submit them: whoever is next looks at once.
        let again_in = if self.stopping { Millis::ZERO } else { CHILDREN_AGAIN };
        let again = (!open_children(&self.task).is_empty()).then(|| self.now() + again_in);
        let at = limits.into_iter().flatten().chain(again).min().unwrap_or_else(|| self.now() + FAR);
        self.write(LeaseChange::Release(Wake::At(at))).await
    }

    /// The node is stopping, and nothing of this workflow runs: it only waits, or it is interrupted where it is.
    pub(super) async fn stop(&mut self) -> Result<(), Over> {
        let waits = |index| {
            let (_, state) = self.task.stage(index);
            state.status == StageStatus::RetryWait || self.flow().step(index).kind.only_waits()
        };
        let only_waits = self.asked.is_empty() && self.flow().open().next().is_some() && self.flow().open().all(waits);
        if only_waits && !self.task.interrupted() { self.park().await } else { self.interrupt().await }
    }

    /// Does what was asked, and what else was asked by now, in one commit: a parent may hear of many children at once.
    pub(super) async fn obey(&mut self, order: Order) -> Result<(), Over> {
        let (mut replies, mut children) = (Vec::new(), Vec::new());
        let mut next = Some(order);
        let begun_at = self.task.version();
        while let Some(order) = next {
            // What starts by itself may not be written yet: a person looks at what the store has. Behind another order of
            // this turn, though, the task is at a version that nobody can have seen.
            let now_at = self.task.version();
            let found = if now_at == begun_at { self.ledger.version() } else { now_at };
            if let Some(expected) = order.expected.filter(|expected| *expected != found) {
                let _ = order.reply.send(Err(VerbError::task_version(&self.key.id, expected, found)));
                next = self.orders.try_recv().ok();
                continue;
            }
            let cancels = matches!(order.command, Command::Cancel(_));
            let waited_for = if cancels { open_children(&self.task) } else { Vec::new() };
            match self.decide(order.command) {
                Err(rejection) => {
                    let _ = order.reply.send(Err(rejection.into()));
                }
                Ok(()) => {
                    replies.push((order.reply, self.task.status()));
                    children.extend(waited_for);
                }
            }
            // What ends or pauses the task is the last that can be asked of it here.
            let goes_on = self.task.status() == TaskStatus::Running;
            next = if goes_on { self.orders.try_recv().ok() } else { None };
        }
        if !self.task.status().is_active() {
            // Nothing may be running once this is committed.
            self.drop_function();
        }
        self.promised = true;
        let outcome = self.write_if_any().await;
        self.promised = false;
        let lost = matches!(outcome, Err(Over::Lost));
        for (reply, status) in replies {
            let _ = reply.send(if lost { Err(VerbError::InDoubt(None)) } else { Ok(status) });
        }
        if !lost {
            self.inner.cancel_children(&self.key.id, children);
        }
        outcome
    }

    pub(super) fn report_soon(&mut self) {
        if self.progress.is_some() {
            self.report_at = self.report_at.or_else(|| Some(self.now() + REPORT_EVERY));
        }
    }

    async fn report(&mut self) {
        self.report_at = None;
        let Some(progress) = self.progress else { return };
        let note = Note { key: self.key.clone(), progress: Some((progress.done, progress.total)), output: Vec::new() };
        let task = &self.task;
        self.inner.feed.publish(|| {
            let (done, stages) = (task.done().len(), task.stages().len());
            FeedItem::Progress {
                plan: task.spec().plan.clone(),
                task: self.key.id.clone(),
                status: task.status(),
                stage: task.current_stage().map(|index| task.stage(index).0.name.clone()),
                progress: Some(progress),
                rate: None,
                done,
                stages,
                percent: percent(task.status(), done, stages + 1, [(progress.done, progress.total)]),
            }
        });
        let (store, cut_off) = (&self.inner.store, &self.cut_off);
        let noted = async {
            tokio::select! {
                biased;
                noted = store.note(vec![note]) => noted,
                () = cut_off.comes() => Ok(()),
            }
        };
        if let Err(error) = meanwhile(&mut self.function, &mut self.returned, pin!(noted)).await {
            tracing::warn!(task = %self.key.id, %error, "progress could not be stored");
        }
    }
}

/// Lets the function go on until it has said something, or returned.
async fn news(function: &mut Option<Function>, returned: &mut Option<Result<Value, Failure>>, desk: &Desk) {
    std::future::poll_fn(|poll| {
        if let Some(running) = function
            && let Poll::Ready(result) = running.as_mut().poll(poll)
        {
            *function = None;
            *returned = Some(result);
            return Poll::Ready(());
        }
        if desk.has_news(poll) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
