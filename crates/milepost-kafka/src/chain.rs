//! The task that a message makes from a chain.

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::id::PlanId;
use milepost_core::message::{Arrival, Message};
use milepost_core::plan::{Chain, Plan, PlanDefinition, TaskDefinition};

/// By the names that messages call them.
pub type Chains = HashMap<String, Chain>;

/// A plan of the name of its only task.
pub(crate) fn plan(chain: &Chain, message: &Message, arrival: &Arc<Arrival>) -> Plan {
    let id = PlanId::parse(message.task_id.as_str()).expect("what may name a task may name a plan");
    let task = TaskDefinition {
        id: message.task_id.clone(),
        tenant: None,
        priority: 0,
        input: message.input.clone(),
        matrix: serde_json::Map::new(),
        stages: None,
        file: message.file.clone(),
        message: Some(arrival.clone()),
    };
    let Chain { settings, stages } = chain.clone();
    let definition = PlanDefinition { id, settings, stages, workflow: None, parent: None };
    Plan { definition, tasks: vec![task] }
}
