//! The same schedule, so many times faster: for servers, on which time passes as it does.

use std::sync::Arc;

use milepost_core::plan::{Action, Plan, StageDefinition, StageList};
use milepost_core::time::Millis;
use serde_json::Value;

use crate::schedule::{Act, Schedule};

/// No attempt is given less time: on a busy machine none would get anywhere.
const SHORTEST_TIMEOUT: Millis = Millis::new(300);

impl Schedule {
    /// Every length of time in it is divided by `pace`. Clocks are as wrong as they were.
    pub fn faster(&self, pace: u32) -> Self {
        let by = u64::from(pace);
        let mut schedule = self.clone();
        schedule.pace *= pace;
        schedule.lease_ms /= by;
        schedule.network.latency_ms /= by;
        for step in &mut schedule.steps {
            step.at_ms /= by;
            match &mut step.act {
                Act::Kill { for_ms, .. }
                | Act::Stop { for_ms, .. }
                | Act::Freeze { for_ms, .. }
                | Act::Cut { for_ms, .. }
                | Act::Away { for_ms } => *for_ms /= by,
                Act::Slow { for_ms, by_ms } => (*for_ms, *by_ms) = (*for_ms / by, *by_ms / by),
                Act::Submit { .. }
                | Act::Operate { .. }
                | Act::Signal { .. }
                | Act::Message { .. }
                | Act::Usurp { .. }
                | Act::SetClock { .. } => {}
            }
        }
        for plan in &mut schedule.plans {
            hasten(Arc::make_mut(plan), by);
        }
        schedule
    }
}

fn hasten(plan: &mut Plan, by: u64) {
    let settings = &mut plan.definition.settings;
    settings.task_timeout = settings.task_timeout.map(|timeout| shorter(timeout, by).max(SHORTEST_TIMEOUT));
    plan.definition.stages = stages(&plan.definition.stages, by);
    for task in &mut plan.tasks {
        task.stages = task.stages.as_ref().map(|list| stages(list, by));
        hasten_program(&mut task.input, by);
    }
}

fn stages(list: &StageList, by: u64) -> StageList {
    let hastened = |stage: &StageDefinition| {
        let mut stage = stage.clone();
        stage.retry.base = shorter(stage.retry.base, by);
        stage.retry.max = stage.retry.max.map(|max| shorter(max, by));
        stage.timeout = stage.timeout.map(|timeout| shorter(timeout, by).max(SHORTEST_TIMEOUT));
        let work = |action: &mut Action| hasten_program(&mut action.with, by);
        work(&mut stage.action);
        stage.rollback.iter_mut().for_each(work);
        stage
    };
    list.iter().map(hastened).collect()
}

/// Lengths of time in what stages and workflows are given, by their names.
fn hasten_program(program: &mut Value, by: u64) {
    match program {
        Value::Array(operations) => operations.iter_mut().for_each(|operation| hasten_program(operation, by)),
        Value::Object(operation) => {
            for (name, value) in operation.iter_mut() {
                match (name.as_str(), value.as_u64()) {
                    ("sleep" | "within" | "ms" | "base", Some(ms)) => *value = (ms / by).into(),
                    ("timeout", Some(ms)) => *value = (ms / by).max(SHORTEST_TIMEOUT.get()).into(),
                    _ => hasten_program(value, by),
                }
            }
        }
        _ => {}
    }
}

fn shorter(length: Millis, by: u64) -> Millis {
    Millis::new((length.get() / by).max(1))
}
