//! Between what a script answers and our types.

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::time::Timestamp;
use redis::Value;

use crate::codec::damaged;
use crate::error::StoreError;

/// A list that a script answered; each place is text, a number or a list of its own.
#[derive(Debug)]
pub(super) struct Answer(Vec<Value>);

impl Answer {
    pub(super) fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values)),
            other => Err(unexpected(format!("{other:?} where a list was expected"))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Missing places are empty, as Redis has no other word for nothing.
    pub(super) fn text(&self, index: usize) -> Result<&str, StoreError> {
        match self.0.get(index) {
            None | Some(Value::Nil) => Ok(""),
            Some(Value::BulkString(bytes)) => {
                std::str::from_utf8(bytes).map_err(|error| unexpected(format!("place {index}: {error}")))
            }
            Some(Value::SimpleString(text)) => Ok(text),
            Some(other) => Err(unexpected(format!("{other:?} where text was expected"))),
        }
    }

    pub(super) fn bytes(&self, index: usize) -> Result<&[u8], StoreError> {
        match self.0.get(index) {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            other => Err(unexpected(format!("{other:?} where bytes were expected"))),
        }
    }

    pub(super) fn number(&self, index: usize) -> Result<i64, StoreError> {
        match self.0.get(index) {
            Some(Value::Int(number)) => Ok(*number),
            _ => {
                let text = self.text(index)?;
                text.parse().map_err(|_| unexpected(format!("`{text}` where a number was expected")))
            }
        }
    }

    pub(super) fn unsigned(&self, index: usize) -> Result<u64, StoreError> {
        Ok(self.number(index)?.unsigned_abs())
    }

    pub(super) fn is_set(&self, index: usize) -> Result<bool, StoreError> {
        Ok(self.number(index)? == 1)
    }

    pub(super) fn time(&self, index: usize) -> Result<Timestamp, StoreError> {
        self.number(index).map(Timestamp::from_millis)
    }

    /// None when the place is empty.
    pub(super) fn time_if_any(&self, index: usize) -> Result<Option<Timestamp>, StoreError> {
        if matches!(self.0.get(index), Some(Value::Int(_))) || !self.text(index)?.is_empty() {
            return self.time(index).map(Some);
        }
        Ok(None)
    }

    pub(super) fn list(&mut self, index: usize) -> Result<Answer, StoreError> {
        match self.0.get_mut(index) {
            Some(value) => Answer::new(std::mem::replace(value, Value::Nil)),
            None => Err(unexpected(format!("there is no list at place {index}"))),
        }
    }

    /// Each place is a list.
    pub(super) fn lists(self) -> Result<Vec<Answer>, StoreError> {
        self.0.into_iter().map(Answer::new).collect()
    }

    pub(super) fn task_id(&self, index: usize) -> Result<TaskId, StoreError> {
        TaskId::parse(self.text(index)?).map_err(|error| damaged("a task's name", error))
    }

    pub(super) fn plan_id(&self, index: usize) -> Result<PlanId, StoreError> {
        PlanId::parse(self.text(index)?).map_err(|error| damaged("a plan's name", error))
    }

    /// None when the place is empty.
    pub(super) fn tenant(&self, index: usize) -> Result<Option<Tenant>, StoreError> {
        let text = self.text(index)?;
        if text.is_empty() {
            return Ok(None);
        }
        Tenant::parse(text).map(Some).map_err(|error| damaged("a tenant's name", error))
    }
}

fn unexpected(detail: String) -> StoreError {
    damaged("an answer of redis", detail)
}
