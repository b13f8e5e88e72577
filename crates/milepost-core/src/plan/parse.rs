//! Reading a plan file: the whole of it or nothing, and everything that is wrong with it at once.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::decode::{self, Fields};
use super::definition::{
    OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Plan, PlanDefinition, Recovery, Settings, Trigger,
};
use super::errors::{Path, PlanErrors, Problem, Problems};
use super::node::{self, Node};
use super::stages::{self, StageRules};
use super::tasks::{Runs, TaskRules};
use super::workflow;
use crate::id::PlanId;
use crate::retry::RetryPolicy;
use crate::time::Millis;

pub(super) const PLAN_KEYS: [&str; 13] = [
    "plan",
    "max_concurrency",
    "recovery",
    "on_tenant_conflict",
    "on_task_failure",
    "on_failure",
    "on_invalid_checkpoint",
    "trigger",
    "task_timeout",
    "defaults",
    "workflow",
    "stages",
    "tasks",
];
pub(super) const DEFAULTS_KEYS: [&str; 2] = ["timeout", "retry"];
const DEFAULT_TIMEOUT: Millis = Millis::from_secs(5 * 60);
const MAX_CONCURRENCY: i64 = 100_000;

/// Says what is wrong with a stage kind (`run`, `http` or the name after `uses:`) and its parameters, if anything is.
pub type CheckAction<'a> = &'a dyn Fn(&str, &Value) -> Result<(), String>;

/// What reading a file takes besides its bytes.
#[derive(Clone)]
pub struct ParseOptions<'a> {
    /// The name of the file, for messages.
    pub file: &'a str,
    /// The id of the plan if the file gives it none.
    pub new_plan_id: PlanId,
    pub check_action: CheckAction<'a>,
    /// Larger files are refused unread.
    pub max_bytes: usize,
}

impl<'a> ParseOptions<'a> {
    /// Takes every stage kind, and files of up to 64 MiB.
    pub fn new(file: &'a str, new_plan_id: PlanId) -> Self {
        Self { file, new_plan_id, check_action: &|_, _| Ok(()), max_bytes: 64 * 1024 * 1024 }
    }
}

impl fmt::Debug for ParseOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseOptions")
            .field("file", &self.file)
            .field("new_plan_id", &self.new_plan_id)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// The plan that a YAML or JSON file describes, with every default filled in.
pub fn parse(source: &[u8], options: &ParseOptions<'_>) -> Result<Plan, PlanErrors> {
    read_file(source, options, read_plan)
}

/// Reads a file by what its root means; everything that is wrong with it is told at once.
pub(super) fn read_file<T>(
    source: &[u8],
    options: &ParseOptions<'_>,
    read: impl FnOnce(&Node, &str, &ParseOptions<'_>, &mut Problems) -> Option<T>,
) -> Result<T, PlanErrors> {
    let text = node::decode(source, options.max_bytes).map_err(|problem| {
        // Only the part before the bad byte is needed to say where it is.
        let shown = String::from_utf8_lossy(&source[..source.len().min(problem.at + 200)]);
        Problems::from(problem).into_errors(options.file, &shown)
    })?;
    let mut problems = Problems::default();
    let whole = match node::read(text) {
        Ok(root) => read(&root, text, options, &mut problems),
        Err(problem) => {
            problems = problem.into();
            None
        }
    };
    match whole {
        Some(whole) if problems.is_empty() => Ok(whole),
        _ => Err(problems.into_errors(options.file, text)),
    }
}

fn read_plan(root: &Node, text: &str, options: &ParseOptions<'_>, problems: &mut Problems) -> Option<Plan> {
    let path = Path::Root;
    if root.is_null() {
        *problems =
            Problem::in_text(0, "the file has no plan in it").help("expected at least `tasks:` and `stages:`").into();
        return None;
    }
    let fields = Fields::open(root, &path, &PLAN_KEYS, problems)?;
    let id = match fields.get("plan") {
        Some(node) => decode::name(node, &path.key("plan"), |text| PlanId::parse(text), problems),
        None => Some(options.new_plan_id.clone()),
    };
    let settings = settings(&fields, problems);
    let rules = stage_rules(&fields, options.check_action, problems);
    let stages = fields.get("stages").map(|node| rules.list(node, &path.key("stages"), problems));
    // The ids of tasks are named after the plan's; with a bad one, they are still checked under some name.
    let plan = id.as_ref().unwrap_or(&options.new_plan_id);
    let workflow = fields.get("workflow").map(|node| workflow::workflow(node, &path.key("workflow"), problems));
    let runs = match (&workflow, &stages) {
        (Some(_), _) => Runs::Workflow,
        (None, Some(_)) => Runs::PlanStages,
        (None, None) => Runs::OwnStages,
    };
    if runs == Runs::Workflow {
        workflow::refuse_beside(&fields, problems);
    }
    let tasks = TaskRules { plan, text, stages: &rules, runs };
    let tasks = match fields.get("tasks") {
        Some(node) => tasks.list(node, &path.key("tasks"), problems),
        None => {
            let at = fields.entry("tasks").map_or(fields.at, |entry| entry.at as usize);
            problems
                .add(at, &path, "the plan has no tasks")
                .help("add `tasks:` with at least one, such as `- id: task-1`");
            Vec::new()
        }
    };
    let stages = stages.unwrap_or_else(|| Some(Arc::from([])));
    if !problems.is_empty() {
        return None;
    }
    let definition = PlanDefinition { id: id?, settings, stages: stages?, workflow: workflow.flatten(), parent: None };
    let plan = Plan { definition, tasks };
    refuse_rollback_without_handler(&plan, &fields, problems);
    Some(plan)
}

fn settings(fields: &Fields<'_>, problems: &mut Problems) -> Settings {
    let mut settings = Settings::default();
    let path = fields.path;
    if let Some(node) = fields.get("max_concurrency")
        && let Some(number) = decode::integer(node, &path.key("max_concurrency"), 1..=MAX_CONCURRENCY, problems)
    {
        settings.max_concurrency = u32::try_from(number).unwrap_or(u32::MAX);
    }
    let mut choose = Chooser { fields, problems };
    choose.set(
        "recovery",
        &[("auto", Some(Recovery::Auto)), ("manual", Some(Recovery::Manual))],
        &mut settings.recovery,
    );
    choose.set(
        "on_tenant_conflict",
        &[("wait", OnTenantConflict::Wait), ("refuse", OnTenantConflict::Refuse)],
        &mut settings.on_tenant_conflict,
    );
    choose.set(
        "on_task_failure",
        &[("continue", OnTaskFailure::Continue), ("pause", OnTaskFailure::Pause)],
        &mut settings.on_task_failure,
    );
    choose.set("on_failure", &[("stop", OnFailure::Stop), ("rollback", OnFailure::Rollback)], &mut settings.on_failure);
    choose.set(
        "on_invalid_checkpoint",
        &[("restart", OnInvalidCheckpoint::Restart), ("block", OnInvalidCheckpoint::Block)],
        &mut settings.on_invalid_checkpoint,
    );
    choose.set("trigger", &[("start", Trigger::Start), ("message", Trigger::Message)], &mut settings.trigger);
    settings.task_timeout = task_timeout(fields, problems);
    settings
}

pub(super) fn task_timeout(fields: &Fields<'_>, problems: &mut Problems) -> Option<Millis> {
    fields.get("task_timeout").and_then(|node| decode::timeout(node, &fields.path.key("task_timeout"), problems))
}

struct Chooser<'a, 'f> {
    fields: &'a Fields<'f>,
    problems: &'a mut Problems,
}

impl Chooser<'_, '_> {
    fn set<T: Copy>(&mut self, key: &str, choices: &[(&'static str, T)], setting: &mut T) {
        if let Some(node) = self.fields.get(key)
            && let Some(choice) = decode::choice(node, &self.fields.path.key(key), choices, self.problems)
        {
            *setting = choice;
        }
    }
}

pub(super) fn stage_rules<'a>(fields: &Fields<'_>, check: CheckAction<'a>, problems: &mut Problems) -> StageRules<'a> {
    let mut rules = StageRules { timeout: DEFAULT_TIMEOUT, retry: RetryPolicy::default(), check };
    let path = fields.path.key("defaults");
    let Some(node) = fields.get("defaults") else { return rules };
    let Some(defaults) = Fields::open(node, &path, &DEFAULTS_KEYS, problems) else { return rules };
    if let Some(node) = defaults.get("timeout")
        && let Some(timeout) = decode::timeout(node, &path.key("timeout"), problems)
    {
        rules.timeout = timeout;
    }
    if let Some(node) = defaults.get("retry")
        && let Some(retry) = stages::retry(node, &path.key("retry"), &rules.retry, problems)
    {
        rules.retry = retry;
    }
    rules
}

fn refuse_rollback_without_handler(plan: &Plan, fields: &Fields<'_>, problems: &mut Problems) {
    let handles = |stages: &super::StageList| stages.iter().any(|stage| stage.rollback.is_some());
    let handled =
        handles(&plan.definition.stages) || plan.tasks.iter().any(|task| task.stages.as_ref().is_some_and(handles));
    if plan.definition.settings.on_failure == OnFailure::Rollback && !handled {
        let at = fields.get("on_failure").map_or(fields.at, Node::at);
        problems
            .add(at, &fields.path.key("on_failure"), "no stage has a `rollback`, so there is nothing to roll back with")
            .help("add `rollback:` to the stages that can be undone, or use `on_failure: stop`");
    }
}
