//! Random workflows: programs as data, and the one function that does what they say.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::WorkflowRef;
use milepost_core::retry::RetryPolicy;
use milepost_core::time::Millis;
use milepost_engine::workflow::{Context, TypedWorkflow, Workflow};
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::outside::Outside;

pub(crate) const NAME: &str = "program";
pub(crate) const SIGNALS: [&str; 2] = ["go", "stop"];

/// A program is a list of operations.
pub(crate) fn program(dice: &mut Dice, depth: u32) -> Value {
    let count = dice.between(1, 4);
    Value::Array((0..count).map(|index| operation(dice, depth, index)).collect())
}

fn operation(dice: &mut Dice, depth: u32, index: u64) -> Value {
    match dice.below(12) {
        0 | 1 => json!({ "sleep": *dice.pick(&[1, 500, 5_000, 45_000]) }),
        2 | 3 => {
            let within = dice.chance(600).then(|| dice.between(1_000, 50_000));
            json!({ "signal": *dice.pick(&SIGNALS), "within": within })
        }
        4 if depth == 0 => json!({ "child": program(dice, depth + 1) }),
        5 if depth == 0 => json!({ "together": [program(dice, 1), program(dice, 1)] }),
        6 => json!({ "draw": true }),
        _ => json!({
            "stage": format!("s{index}"),
            "how": *dice.pick(&["well", "well", "well", "fails", "fails", "fatal", "hangs"]),
            "ms": *dice.pick(&[0, 0, 40, 500, 3_000]),
            "times": dice.between(1, 3),
            "attempts": dice.between(1, 4),
            "base": *dice.pick(&[1, 1_000, 40_000]),
            "timeout": *dice.pick(&[500, 10_000]),
            "undo": dice.chance(400),
            "handled": dice.chance(300),
        }),
    }
}

/// What a node runs under that name. Its stages leave their mark outside, as those of plans do.
pub(crate) struct Program {
    pub(crate) outside: Arc<Outside>,
}

impl Workflow for Program {
    fn reference(&self) -> WorkflowRef {
        WorkflowRef::first(NAME)
    }

    fn run(&self, context: Context, input: Arc<Value>) -> BoxFuture<'static, Result<Value, Failure>> {
        let outside = self.outside.clone();
        async move { perform(&context, &outside, &input).await }.boxed()
    }
}

impl TypedWorkflow for Program {
    type Input = Value;
    type Output = Value;
}

fn perform<'a>(
    context: &'a Context,
    outside: &'a Arc<Outside>,
    program: &'a Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    async move {
        let mut values = Vec::new();
        for operation in program.as_array().into_iter().flatten() {
            values.push(step(context, outside, operation).await?);
        }
        Ok(Value::Array(values))
    }
    .boxed()
}

async fn step(context: &Context, outside: &Arc<Outside>, operation: &Value) -> Result<Value, Failure> {
    let number = |key: &str| operation[key].as_u64().unwrap_or_default();
    if operation.get("sleep").is_some() {
        context.sleep("sleep", Duration::from_millis(number("sleep"))).await?;
        return Ok(Value::Null);
    }
    if let Some(name) = operation["signal"].as_str() {
        let mut signal = context.signal::<Value>(name);
        if operation["within"].is_u64() {
            signal = signal.deadline(Duration::from_millis(number("within")));
        }
        return match signal.await {
            Err(failure) if failure.error_type == ErrorType::Timeout => Ok(json!("timeout")),
            answer => answer,
        };
    }
    if operation.get("child").is_some() {
        let child = Program { outside: outside.clone() };
        return context.child("child", || child, operation["child"].clone()).await;
    }
    if let Some(branches) = operation["together"].as_array() {
        let contexts: Vec<Context> = (0..branches.len()).map(|branch| context.branch(&format!("b{branch}"))).collect();
        let sides = contexts.iter().zip(branches).map(|(context, program)| perform(context, outside, program));
        let ended: Result<Vec<Value>, Failure> = futures::future::join_all(sides).await.into_iter().collect();
        return ended.map(Value::Array);
    }
    if operation.get("draw").is_some() {
        let _ = context.now();
        return Ok(json!([context.random::<u64>(), context.uuid().to_string()]));
    }
    stage(context, outside, operation).await
}

async fn stage(context: &Context, outside: &Arc<Outside>, operation: &Value) -> Result<Value, Failure> {
    let number = |key: &str| operation[key].as_u64().unwrap_or_default();
    let name = operation["stage"].as_str().unwrap_or_default().to_owned();
    let retry = RetryPolicy {
        max_attempts: number("attempts") as u32,
        base: Millis::new(number("base")),
        max: None,
        ..RetryPolicy::default()
    };
    let mut stage = context.stage(name.clone()).retry(retry).timeout(Duration::from_millis(number("timeout")));
    if operation["undo"] == json!(true) {
        let (outside, task, name) = (outside.clone(), context.task().clone(), name.clone());
        stage = stage.rollback(move || {
            let (outside, task, name) = (outside.clone(), task.clone(), name.clone());
            async move {
                outside.undone(&task, &name);
                Ok::<(), Failure>(())
            }
        });
    }
    let done = stage
        .run(|| {
            let (outside, task, name, with) =
                (outside.clone(), context.task().clone(), name.clone(), operation.clone());
            async move { outside.stage_of_flow(&task, &name, &with).await }
        })
        .await;
    match done {
        Err(failure) if operation["handled"] == json!(true) => Ok(json!([failure.reason, failure.attempts])),
        done => done,
    }
}
