//! A workflow that failed, on its way back: its stages are undone one by one, the last first.

use std::pin::pin;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::{Answer, Command, StageEnded, StageResult};
use milepost_core::time::Timestamp;
use milepost_store::{LeaseChange, Wake};

use crate::runner::sleep_until;

use super::operation::limited;
use super::runner::{FlowRunner, Over};

impl FlowRunner {
    /// Undoes one stage, or waits for when the next attempt at it may start.
    pub(super) async fn undo_turn(&mut self) -> Result<(), Over> {
        if let Ok(order) = self.orders.try_recv() {
            return self.obey(order).await;
        }
        self.stopping |= self.inner.is_stopping();
        // The function says how each stage is undone; what it asks for besides, or how it ends, is of no account now.
        if self.function.is_some() {
            let _ = self.advance().await;
            self.drop_function();
        }
        let Some(undo) = self.task.undo().cloned() else { return Err(Over::Lost) };
        let running = undo.queue.first().copied().filter(|_| undo.running);
        match running {
            Some(_) if self.stopping => self.interrupt().await,
            Some(_) if !self.inner.may_begin(&self.cut_off) => self.wait_for_lease().await,
            Some(stage) => {
                let result = self.undo(stage).await?;
                let stopping = self.stopping || self.inner.is_stopping();
                self.must(Command::StageEnded(StageEnded { stage, attempt: undo.attempt, result, stopping }));
                self.write_if_any().await
            }
            None if self.stopping => self.interrupt().await,
            None => self.wait_to_undo(undo.due).await,
        }
    }

    async fn undo(&mut self, index: usize) -> Result<StageResult, Over> {
        let (definition, _) = self.task.stage(index);
        let (name, timeout) = (definition.name.clone(), definition.timeout);
        let value = match self.task.answer(index) {
            Some(Answer::Value(value)) => Some(value),
            Some(Answer::Failure(_)) | None => None,
        };
        let Some(handler) = self.desk.handler(&name) else {
            let reason = format!("the code no longer reaches stage `{name}`, which says how it is undone");
            return Ok(StageResult::Failure(Failure::fatal(ErrorType::Determinism, reason)));
        };
        let mut work = pin!(limited(async move { handler(value).await }, timeout));
        loop {
            // Whoever asks for something meanwhile is answered now, not when this is undone.
            let order = tokio::select! {
                biased;
                () = self.cut_off.comes() => return Err(Over::Lost),
                Some(order) = self.orders.recv() => order,
                undone = &mut work => return Ok(match undone {
                    Ok(()) => StageResult::Success(serde_json::Map::new()),
                    Err(failure) => StageResult::Failure(failure),
                }),
            };
            self.obey(order).await?;
        }
    }

    async fn wait_for_lease(&mut self) -> Result<(), Over> {
        tokio::select! {
            biased;
            () = self.cut_off.comes() => Err(Over::Lost),
            Some(order) = self.orders.recv() => self.obey(order).await,
            () = self.inner.stop.cancelled() => self.interrupt().await,
            () = self.inner.lease_renewed() => Ok(()),
        }
    }

    async fn wait_to_undo(&mut self, due: Option<Timestamp>) -> Result<(), Over> {
        if let Some(due) = due.filter(|due| due.since(self.now()) > self.inner.park_after()) {
            return self.write(LeaseChange::Release(Wake::At(due))).await;
        }
        let clock = &self.inner.clock;
        tokio::select! {
            biased;
            () = self.cut_off.comes() => Err(Over::Lost),
            Some(order) = self.orders.recv() => self.obey(order).await,
            () = self.inner.stop.cancelled() => self.interrupt().await,
            () = sleep_until(clock, due.or_else(|| Some(clock.now()))) => {
                self.must(Command::Wake);
                self.write_if_any().await
            }
        }
    }

    pub(super) async fn interrupt(&mut self) -> Result<(), Over> {
        self.must(Command::Interrupt { reason: "the node was stopped".to_owned() });
        self.write(LeaseChange::Keep).await
    }
}
