//! A schedule from a seed: random nodes, random work, random faults.

use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{
    Action, OnFailure, OnTaskFailure, Plan, PlanDefinition, Recovery, Settings, StageDefinition, StageList,
    TaskDefinition, Trigger, WorkflowRef,
};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::time::Millis;
use milepost_engine::{OnStoreLoss, Verb};
use serde_json::{Map, Value, json};

use crate::dice::Dice;
use crate::flows;
use crate::schedule::{Act, Aim, Network, NodeSetup, Schedule, Step, Via};

const LEASE_MS: u64 = 15_000;
const TENANTS: [&str; 3] = ["red", "green", "blue"];

impl Schedule {
    /// The same for the same seed, on any machine.
    pub fn generate(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let nodes: Vec<NodeSetup> = (0..dice.between(1, 3)).map(|_| node(&mut dice)).collect();
        let network = network(&mut dice);
        let mut plans: Vec<Arc<Plan>> =
            (0..dice.between(1, 3)).map(|number| Arc::new(plan(&mut dice, number as usize))).collect();
        let mut steps = Vec::new();
        let mut horizon = 0;
        for number in 0..plans.len() {
            let at_ms = dice.below(20_000);
            horizon = horizon.max(at_ms);
            let start = dice.chance(850);
            steps.push(Step { at_ms, act: Act::Submit { plan: number, start, update: false } });
            if !start && dice.chance(800) {
                let act = Act::Operate {
                    target: Aim::Plan(plans[number].definition.id.clone()),
                    verb: Verb::Start,
                    via: via(&mut dice, &nodes),
                };
                steps.push(Step { at_ms: at_ms + dice.below(10_000), act });
            }
            if dice.chance(150) {
                let changed = updated(&mut dice, &plans[number], plans.len());
                plans.push(Arc::new(changed));
                let at_ms = at_ms + dice.below(60_000);
                steps.push(Step { at_ms, act: Act::Submit { plan: plans.len() - 1, start: true, update: true } });
            }
        }
        horizon += 20_000 + dice.below(60_000);
        messages(&mut dice, &plans, &nodes, horizon, &mut steps);
        for _ in 0..dice.below(9) {
            let act = operator(&mut dice, &plans, &nodes);
            steps.push(Step { at_ms: dice.below(horizon), act });
        }
        let faults = if dice.chance(150) { 0 } else { dice.between(1, 7) };
        for _ in 0..faults {
            let act = fault(&mut dice, nodes.len());
            steps.push(Step { at_ms: dice.below(horizon), act });
        }
        steps.sort_by_key(|step| step.at_ms);
        Self { seed, lease_ms: LEASE_MS, pace: 1, nodes, network, plans, steps }
    }
}

fn node(dice: &mut Dice) -> NodeSetup {
    let wrong_clock = dice.chance(200);
    NodeSetup {
        capacity: *dice.pick(&[1, 2, 4, 64]),
        chains: *dice.pick(&[1, 2, 4]),
        on_store_loss: match dice.below(10) {
            0 => OnStoreLoss::Fail,
            1 | 2 => OnStoreLoss::Continue,
            _ => OnStoreLoss::Hold,
        },
        skew_ms: if wrong_clock { dice.between(0, 1_200_000) as i64 - 600_000 } else { 0 },
        drift_ppm: if wrong_clock { dice.between(0, 1_000) as i32 - 500 } else { 0 },
    }
}

fn network(dice: &mut Dice) -> Network {
    match dice.below(4) {
        0 => Network::default(),
        1 => Network { latency_ms: dice.between(1, 20), ..Network::default() },
        _ => Network {
            latency_ms: dice.between(0, 50),
            lost: dice.below(40),
            answer_lost: dice.below(60),
            late: dice.below(40),
            repeated: dice.below(40),
        },
    }
}

fn via(dice: &mut Dice, nodes: &[NodeSetup]) -> Via {
    if dice.chance(400) { Via::Visitor } else { Via::Node(dice.index(nodes.len())) }
}

// --- work ---

fn plan(dice: &mut Dice, number: usize) -> Plan {
    let id = PlanId::parse(format!("p{number}")).expect("an id");
    let settings = settings(dice);
    if settings.trigger == Trigger::Start && dice.chance(250) {
        return workflow(dice, id, settings);
    }
    let stages = stages(dice);
    let tasks = (0..dice.between(1, 4)).map(|task| self::task(dice, number, task)).collect();
    Plan { definition: PlanDefinition { id, settings, stages, workflow: None, parent: None }, tasks }
}

fn settings(dice: &mut Dice) -> Settings {
    Settings {
        max_concurrency: dice.between(1, 4) as u32,
        recovery: if dice.chance(150) { Some(Recovery::Manual) } else { None },
        on_task_failure: if dice.chance(150) { OnTaskFailure::Pause } else { OnTaskFailure::Continue },
        on_failure: if dice.chance(300) { OnFailure::Rollback } else { OnFailure::Stop },
        trigger: if dice.chance(150) { Trigger::Message } else { Trigger::Start },
        task_timeout: dice.chance(120).then(|| Millis::new(dice.between(2_000, 60_000))),
        ..Settings::default()
    }
}

fn task(dice: &mut Dice, plan: usize, number: u64) -> TaskDefinition {
    TaskDefinition {
        id: TaskId::parse(format!("p{plan}-t{number}")).expect("an id"),
        tenant: dice.chance(500).then(|| Tenant::parse(*dice.pick(&TENANTS)).expect("a tenant")),
        priority: dice.below(3) as i32,
        input: Value::Null,
        matrix: Map::new(),
        stages: dice.chance(100).then(|| stages(dice)),
        file: None,
        message: None,
    }
}

fn workflow(dice: &mut Dice, id: PlanId, settings: Settings) -> Plan {
    let task = TaskDefinition {
        id: TaskId::parse(id.as_str()).expect("an id"),
        tenant: dice.chance(300).then(|| Tenant::parse(*dice.pick(&TENANTS)).expect("a tenant")),
        priority: 0,
        input: flows::program(dice, 0),
        matrix: Map::new(),
        stages: None,
        file: None,
        message: None,
    };
    let workflow = Some(WorkflowRef::first(flows::NAME));
    let settings = Settings { max_concurrency: 1, ..settings };
    Plan {
        definition: PlanDefinition { id, settings, stages: Vec::new().into(), workflow, parent: None },
        tasks: vec![task],
    }
}

fn stages(dice: &mut Dice) -> StageList {
    let chain = dice.chance(600);
    let count = dice.between(1, 4) as usize;
    (0..count)
        .map(|index| StageDefinition {
            name: StageName::parse(["a", "b", "c", "d"][index]).expect("a name"),
            action: work(dice),
            needs: match (chain, index) {
                (_, 0) => Vec::new(),
                (true, _) => vec![index - 1],
                (false, _) => (0..index).filter(|_| dice.chance(500)).collect(),
            },
            condition: None,
            retry: retry(dice),
            timeout: dice.chance(300).then(|| Millis::new(dice.between(500, 20_000))),
            rollback: dice.chance(500).then(|| work(dice)),
        })
        .collect()
}

pub(crate) fn retry(dice: &mut Dice) -> RetryPolicy {
    RetryPolicy {
        max_attempts: dice.between(1, 4) as u32,
        strategy: *dice.pick(&[Strategy::Fixed, Strategy::Linear, Strategy::Exponential]),
        // Some waits are long enough for a task to be given back meanwhile.
        base: Millis::new(*dice.pick(&[1, 100, 1_000, 5_000, 40_000])),
        max: Some(Millis::from_secs(60)),
        jitter: dice.chance(500),
        ..RetryPolicy::default()
    }
}

fn work(dice: &mut Dice) -> Action {
    let how = match dice.below(20) {
        0..=9 => "well",
        10..=13 => "fails",
        14 => "fatal",
        15 => "skips",
        16 => "hangs",
        17 => "panics",
        18 => "deaf",
        _ => "slow",
    };
    let ms = *dice.pick(&[0, 0, 1, 40, 60, 500, 3_000, 9_000]);
    let script = None;
    Action { uses: "work".to_owned(), script, with: json!({ "how": how, "ms": ms, "times": dice.between(1, 3) }) }
}

/// The same plan with other settings, one task more and perhaps one less.
fn updated(dice: &mut Dice, plan: &Plan, number: usize) -> Plan {
    let mut changed = plan.clone();
    if changed.definition.workflow.is_some() {
        return changed;
    }
    changed.definition.settings.max_concurrency = dice.between(1, 4) as u32;
    if dice.chance(200) {
        changed.definition.settings.recovery = Some(Recovery::Manual);
    }
    let plan_number = 10 + number;
    changed.tasks.push(task(dice, plan_number, 0));
    if changed.tasks.len() > 2 && dice.chance(500) {
        changed.tasks.remove(0);
    }
    changed
}

// --- what people ask ---

fn operator(dice: &mut Dice, plans: &[Arc<Plan>], nodes: &[NodeSetup]) -> Act {
    let plan = dice.pick(plans).clone();
    let via = via(dice, nodes);
    if plan.definition.workflow.is_some() && dice.chance(500) {
        let name = *dice.pick(&flows::SIGNALS);
        return Act::Signal { task: plan.tasks[0].id.clone(), name, via };
    }
    let target = match dice.below(5) {
        0 | 1 => Aim::Plan(plan.definition.id.clone()),
        2 | 3 => Aim::Task(dice.pick(&plan.tasks).id.clone()),
        _ => Aim::Tenant(Tenant::parse(*dice.pick(&TENANTS)).expect("a tenant")),
    };
    let verb = match dice.below(12) {
        0 | 1 => Verb::Pause,
        2..=4 => Verb::Resume,
        5 => Verb::Cancel,
        6 | 7 => Verb::Retry { from_checkpoint: true },
        8 => Verb::Retry { from_checkpoint: false },
        9 => Verb::Rollback,
        10 => Verb::ResetFailed,
        _ => Verb::Start,
    };
    Act::Operate { target, verb, via }
}

fn messages(dice: &mut Dice, plans: &[Arc<Plan>], nodes: &[NodeSetup], horizon: u64, steps: &mut Vec<Step>) {
    for plan in plans.iter().filter(|plan| plan.definition.settings.trigger == Trigger::Message) {
        for task in &plan.tasks {
            if dice.chance(850) {
                let act = Act::Message {
                    task: task.id.clone(),
                    id: format!("m-{}", task.id),
                    again: dice.below(3),
                    expires: dice.chance(100),
                    via: via(dice, nodes),
                };
                steps.push(Step { at_ms: dice.below(horizon), act });
            }
        }
    }
}

// --- faults ---

fn fault(dice: &mut Dice, nodes: usize) -> Act {
    let node = dice.index(nodes);
    let for_ms = *dice.pick(&[50, 1_000, 5_000, 14_000, 16_000, 25_000, 60_000]);
    match dice.below(20) {
        0..=4 => Act::Kill { node, for_ms, renamed: dice.chance(300) },
        5 | 6 => Act::Stop { node, for_ms },
        7 => Act::Usurp { node },
        8..=11 => Act::Freeze { node, for_ms },
        12..=14 => Act::Cut { node, for_ms },
        15 | 16 => Act::Away { for_ms },
        17 => Act::Slow { for_ms, by_ms: *dice.pick(&[200, 2_000, 6_000]) },
        _ => Act::SetClock { node, by_ms: *dice.pick(&[-3_600_000, -5_000, 5_000, 600_000, 86_400_000]) },
    }
}
