//! Workflows as data, and the one workflow that does what they say.

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use milepost::{Context, Failure, Retry, millis};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) type Program = Vec<Op>;

/// Stages are called `s1`, `s2`, …, and branches `b1`, `b2`, …, each number once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Op {
    Stage(Stage),
    Sleep(u64),
    /// Draws from the clock and the dice.
    Draw,
    /// Goes one way or the other, as chance will have it.
    Either(Program, Program),
    /// Side by side; all come to their end before the first failure counts.
    Together(Vec<(String, Program)>),
    Child(Program),
    /// Begins anew with the rest of the program.
    Anew,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) strategy: Strategy,
    pub(crate) base_ms: u64,
    /// Executions beyond the first one.
    pub(crate) retries: u32,
    pub(crate) timeout_ms: Option<u64>,
    /// How many of its attempts fail, and how.
    pub(crate) failures: u32,
    pub(crate) how: How,
    pub(crate) rollback: bool,
    /// The workflow goes on when the stage has failed.
    pub(crate) handled: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Strategy {
    Exponential,
    Linear,
    Fixed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Refuses,
    Hangs,
    Panics,
    /// For good: no retry helps.
    Fatally,
}

impl Stage {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            name: format!("s{number}"),
            strategy: Strategy::Exponential,
            base_ms: 1000,
            retries: 3,
            timeout_ms: None,
            failures: 0,
            how: How::Refuses,
            rollback: false,
            handled: false,
        }
    }

    fn retry(&self) -> Retry {
        let base = millis(self.base_ms);
        let retry = match self.strategy {
            Strategy::Exponential => Retry::exponential(base),
            Strategy::Linear => Retry::linear(base),
            Strategy::Fixed => Retry::fixed(base),
        };
        retry.attempts(self.retries + 1)
    }
}

/// Every stage of a program, wherever it is.
pub(crate) fn stages(program: &[Op]) -> Vec<&Stage> {
    let mut found = Vec::new();
    for op in program {
        match op {
            Op::Stage(stage) => found.push(stage),
            Op::Sleep(_) | Op::Draw | Op::Anew => {}
            Op::Either(one, other) => found.extend(stages(one).into_iter().chain(stages(other))),
            Op::Together(branches) => found.extend(branches.iter().flat_map(|(_, branch)| stages(branch))),
            Op::Child(child) => found.extend(stages(child)),
        }
    }
    found
}

#[milepost::workflow]
pub(crate) async fn perform(ctx: &mut Context, program: Program) -> Result<Value, Failure> {
    let mut values = Vec::new();
    for (index, op) in program.iter().enumerate() {
        if let Op::Anew = op {
            return ctx.continue_as_new(&program[index + 1..]);
        }
        values.push(step(ctx, op).await?);
    }
    Ok(Value::Array(values))
}

fn all<'a>(ctx: &'a Context, program: &'a [Op]) -> BoxFuture<'a, Result<Value, Failure>> {
    async move {
        let mut values = Vec::new();
        for op in program {
            values.push(step(ctx, op).await?);
        }
        Ok(Value::Array(values))
    }
    .boxed()
}

async fn step(ctx: &Context, op: &Op) -> Result<Value, Failure> {
    match op {
        Op::Stage(wanted) => {
            let mut stage = ctx.stage(wanted.name.clone()).input(&wanted.name).retry(wanted.retry());
            if let Some(timeout) = wanted.timeout_ms {
                stage = stage.timeout(millis(timeout));
            }
            if wanted.rollback {
                stage = stage.rollback(|| async { Ok::<(), Failure>(()) });
            }
            let work = || async { Err::<Value, _>(Failure::fatal(milepost::ErrorType::Unknown, "it has a fake")) };
            match stage.run(work).await {
                Err(failure) if wanted.handled => Ok(json!([failure.reason, failure.attempts])),
                result => result,
            }
        }
        Op::Sleep(length) => {
            ctx.sleep("sleep", millis(*length)).await?;
            Ok(Value::Null)
        }
        Op::Draw => {
            let _ = ctx.now();
            Ok(json!([ctx.random::<u64>(), ctx.uuid().to_string()]))
        }
        Op::Either(one, other) => all(ctx, if ctx.random() { one } else { other }).await,
        Op::Together(branches) => {
            let contexts: Vec<_> = branches.iter().map(|(name, _)| ctx.branch(name)).collect();
            let sides = contexts.iter().zip(branches).map(|(ctx, (_, program))| all(ctx, program));
            let ended: Result<Vec<Value>, Failure> = join_all(sides).await.into_iter().collect();
            ended.map(Value::Array)
        }
        Op::Child(program) => ctx.child("child", perform, program.clone()).await,
        Op::Anew => Ok(Value::Null),
    }
}
