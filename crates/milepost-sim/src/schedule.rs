//! A schedule as data: which nodes there are, what they are given to do, and what goes wrong when.
//!
//! It is made from its seed before anything runs, so that a failing one can be made shorter step by step.

use std::fmt;
use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::Plan;
use milepost_engine::{OnStoreLoss, Verb};

#[derive(Debug, Clone)]
pub struct Schedule {
    pub seed: u64,
    pub lease_ms: u64,
    /// How much faster it is played than it was made, for what is not written in it.
    pub pace: u32,
    pub nodes: Vec<NodeSetup>,
    pub network: Network,
    pub plans: Vec<Arc<Plan>>,
    /// By time.
    pub steps: Vec<Step>,
}

/// How a node is set up, whichever process it is at the time.
#[derive(Debug, Clone)]
pub struct NodeSetup {
    pub capacity: usize,
    pub chains: usize,
    pub on_store_loss: OnStoreLoss,
    /// By how much its clock is ahead of the store's when it starts.
    pub skew_ms: i64,
    /// By how much its clock goes too fast, in millionths.
    pub drift_ppm: i32,
}

/// What becomes of the calls of every node, besides what steps do to single ones. In thousandths of all calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Network {
    /// A call takes up to so long, each way.
    pub latency_ms: u64,
    /// It never arrives.
    pub lost: u64,
    /// It arrives, and its answer does not.
    pub answer_lost: u64,
    /// It arrives after its caller has given up.
    pub late: u64,
    /// It arrives a second time, a while later.
    pub repeated: u64,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub at_ms: u64,
    pub act: Act,
}

#[derive(Debug, Clone)]
pub enum Act {
    Submit {
        plan: usize,
        start: bool,
        update: bool,
    },
    Operate {
        target: Aim,
        verb: Verb,
        via: Via,
    },
    Signal {
        task: TaskId,
        name: &'static str,
        via: Via,
    },
    /// A message for a task, delivered until it is taken in, and so many times more.
    Message {
        task: TaskId,
        id: String,
        again: u64,
        expires: bool,
        via: Via,
    },
    /// The process is gone; another begins some time later, under its name or another.
    Kill {
        node: usize,
        for_ms: u64,
        renamed: bool,
    },
    /// It ends in good order, and another begins.
    Stop {
        node: usize,
        for_ms: u64,
    },
    /// Another process of its name begins while it still runs.
    Usurp {
        node: usize,
    },
    Freeze {
        node: usize,
        for_ms: u64,
    },
    /// Its calls arrive when it is let through again, if at all.
    Cut {
        node: usize,
        for_ms: u64,
    },
    /// Nothing gets through to the store from anybody.
    Away {
        for_ms: u64,
    },
    /// Every call takes so much longer.
    Slow {
        for_ms: u64,
        by_ms: u64,
    },
    /// A node's clock is set.
    SetClock {
        node: usize,
        by_ms: i64,
    },
}

#[derive(Debug, Clone)]
pub enum Aim {
    Plan(PlanId),
    Task(TaskId),
    Tenant(Tenant),
}

/// Through whom somebody asks: a node, or a process that only looks and asks.
#[derive(Debug, Clone, Copy)]
pub enum Via {
    Node(usize),
    Visitor,
}

impl Act {
    /// It makes something fail, rather than asking for something.
    pub fn is_fault(&self) -> bool {
        match self {
            Act::Submit { .. } | Act::Operate { .. } | Act::Signal { .. } | Act::Message { .. } => false,
            Act::Kill { .. }
            | Act::Stop { .. }
            | Act::Usurp { .. }
            | Act::Freeze { .. }
            | Act::Cut { .. }
            | Act::Away { .. }
            | Act::Slow { .. }
            | Act::SetClock { .. } => true,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (number, node) in self.nodes.iter().enumerate() {
            writeln!(f, "node {number}: {node:?}")?;
        }
        writeln!(f, "{:?}", self.network)?;
        for (number, plan) in self.plans.iter().enumerate() {
            let definition = &plan.definition;
            writeln!(f, "plan {number}: {} {:?}", definition.id, definition.settings)?;
            for stage in definition.stages.iter() {
                let undo = stage.rollback.as_ref().map(|undo| format!(", undone by {}", undo.with)).unwrap_or_default();
                let (name, needs, attempts) = (&stage.name, &stage.needs, stage.retry.max_attempts);
                writeln!(f, "  stage {name} needs {needs:?}, {attempts} attempts: {}{undo}", stage.action.with)?;
            }
            for task in &plan.tasks {
                let tenant = task.tenant.as_ref().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
                let input = if task.input.is_null() { String::new() } else { format!(": {}", task.input) };
                writeln!(f, "  task {}{tenant}{input}", task.id)?;
            }
        }
        for step in &self.steps {
            writeln!(f, "{:>8}.{:03} s  {:?}", step.at_ms / 1000, step.at_ms % 1000, step.act)?;
        }
        Ok(())
    }
}
