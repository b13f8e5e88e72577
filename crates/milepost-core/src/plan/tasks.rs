//! The tasks of a plan: each as written, or as many as its `matrix` makes.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::decode::{self, Fields};
use super::definition::{StageList, TaskDefinition};
use super::errors::{Path, Problems};
use super::file::FileNode;
use super::node::{Entry, Kind, Node};
use super::stages::StageRules;
use crate::id::{PlanId, TaskId, Tenant};

pub(super) const TASK_KEYS: [&str; 7] = ["id", "tenant", "priority", "input", "file", "stages", "matrix"];
/// Every task is held in memory while its plan is read.
const MAX_TASKS: usize = 1_000_000;

/// What reading tasks takes besides the tasks.
pub(super) struct TaskRules<'a> {
    pub(super) plan: &'a PlanId,
    pub(super) text: &'a str,
    pub(super) stages: &'a StageRules<'a>,
    pub(super) runs: Runs,
}

/// What a task does that says nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    PlanStages,
    /// There is nothing to fall back on: each task has its own.
    OwnStages,
    /// A function, whatever the task says.
    Workflow,
}

/// A task of the list, and where to point if its id clashes.
struct Placed {
    task: TaskDefinition,
    index: usize,
    at: usize,
    generated: bool,
}

/// What all tasks of one item of the list have in common.
struct Common {
    tenant: Option<Tenant>,
    priority: i32,
    input: Value,
    stages: Option<StageList>,
}

impl Common {
    fn task(&self, id: TaskId) -> TaskDefinition {
        TaskDefinition {
            id,
            tenant: self.tenant.clone(),
            priority: self.priority,
            input: self.input.clone(),
            matrix: Map::new(),
            stages: self.stages.clone(),
            file: None,
            message: None,
        }
    }
}

impl TaskRules<'_> {
    pub(super) fn list(&self, node: &Node, path: &Path<'_>, problems: &mut Problems) -> Vec<TaskDefinition> {
        let Some(items) = decode::list(node, path, problems) else { return Vec::new() };
        if items.is_empty() {
            problems.add(node.at(), path, "the plan has no tasks").help("add at least one, such as `- id: task-1`");
        }
        let mut placed = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let path = path.index(i);
            if placed.len() == MAX_TASKS {
                too_many(item, &path, problems);
                break;
            }
            // What is wrong with it is noted; the others are still read.
            let _ = self.task(i, item, &path, &mut placed, problems);
        }
        refuse_clashes(&placed, path, problems);
        placed.into_iter().map(|placed| placed.task).collect()
    }

    /// Adds the tasks that one item of the list stands for.
    fn task(
        &self,
        index: usize,
        item: &Node,
        path: &Path<'_>,
        placed: &mut Vec<Placed>,
        problems: &mut Problems,
    ) -> Option<()> {
        let fields = Fields::open(item, path, &TASK_KEYS, problems)?;
        let id = fields.get("id").map(|node| {
            let id = decode::name(node, &path.key("id"), |text| TaskId::parse(text), problems);
            (node.at(), id)
        });
        let matrix = fields.get("matrix").map(|node| {
            let path = path.key("matrix");
            let matrix = matrix(node, &path, self.text, problems);
            if self.runs == Runs::Workflow {
                refuse_unseen(node, &path, problems);
            }
            matrix
        });
        let common = self.common(&fields, matches!(matrix, Some(Some(Matrix { tenants: Some(_), .. }))), problems);
        let count = match &matrix {
            Some(matrix) => matrix.as_ref()?.count(),
            None => Some(1),
        };
        let Some(count) = count.filter(|count| count.saturating_add(placed.len()) <= MAX_TASKS) else {
            too_many(item, path, problems);
            return None;
        };
        if let Some((at, _)) = id
            && count > 1
        {
            problems
                .add(at, &path.key("id"), format!("one id for {count} tasks"))
                .help("leave `id` out; the tasks of a `matrix` are named after the plan and their position");
            return None;
        }
        let file_path = path.key("file");
        let file = match fields.get("file") {
            Some(node) => Some(self.file(node, &file_path, problems)?),
            None => None,
        };
        let common = common?;
        for n in 0..count {
            let (at, generated, id) = match &id {
                Some((at, id)) => (*at, false, id.clone()?),
                None => (item.at(), true, self.generated_id(placed.len() + 1, item.at(), path, problems)?),
            };
            let mut task = common.task(id);
            if let Some(Some(matrix)) = &matrix {
                matrix.fill(n, &mut task);
            }
            if let Some(file) = &file {
                // One mistake in it is one for every task of a matrix, and said once.
                task.file = Some(file.of(self.plan, &task, &file_path, problems)?);
            }
            placed.push(Placed { task, index, at, generated });
        }
        Some(())
    }

    fn common(&self, fields: &Fields<'_>, matrix_has_tenants: bool, problems: &mut Problems) -> Option<Common> {
        let path = fields.path;
        let tenant = fields.get("tenant").and_then(|node| {
            if matrix_has_tenants {
                problems
                    .add(node.at(), &path.key("tenant"), "the tenant is given here and in `matrix`")
                    .help("remove one of the two");
            }
            decode::name(node, &path.key("tenant"), |text| Tenant::parse(text), problems)
        });
        let priority = fields.get("priority").map_or(Some(0), |node| {
            decode::integer(node, &path.key("priority"), i64::from(i32::MIN)..=i64::from(i32::MAX), problems)
        });
        let stages = fields.get("stages").and_then(|node| self.stages.list(node, &path.key("stages"), problems));
        match (self.runs, fields.get("stages")) {
            (Runs::OwnStages, None) => {
                problems.add(fields.at, path, "the task has no stages, and neither has the plan").help(
                    "add `stages:` to the plan or to the task; `stages: []` on the task makes one with nothing to do",
                );
            }
            (Runs::Workflow, Some(node)) => {
                problems
                    .add(node.at(), &path.key("stages"), "the task has stages, and its plan has a `workflow`")
                    .help("remove one of the two");
            }
            (Runs::PlanStages, _) | (Runs::OwnStages, Some(_)) | (Runs::Workflow, None) => {}
        }
        Some(Common {
            tenant,
            priority: i32::try_from(priority?).ok()?,
            input: fields.get("input").map(Node::to_value).unwrap_or_default(),
            stages,
        })
    }

    fn file<'a>(&self, node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<FileNode<'a>> {
        if self.runs == Runs::Workflow {
            problems
                .add(node.at(), path, "the task has a file, and its plan has a `workflow`")
                .help("files are brought to stages; give the function what it needs as its `input`");
        }
        FileNode::read(node, path, problems)
    }

    fn generated_id(&self, position: usize, at: usize, path: &Path<'_>, problems: &mut Problems) -> Option<TaskId> {
        let id = TaskId::parse(format!("{}-{position}", self.plan));
        if let Err(error) = &id {
            problems.add(at, path, error.to_string()).help("give the task an `id`, or the plan a shorter one");
        }
        id.ok()
    }
}

fn too_many(item: &Node, path: &Path<'_>, problems: &mut Problems) {
    problems
        .add(item.at(), path, format!("the plan has more than {MAX_TASKS} tasks"))
        .help("split it into several plans");
}

fn refuse_clashes(placed: &[Placed], path: &Path<'_>, problems: &mut Problems) {
    let mut first: HashMap<&TaskId, &Placed> = HashMap::with_capacity(placed.len());
    for task in placed {
        let Some(other) = first.insert(&task.task.id, task) else { continue };
        // A task that was named is easier to rename than one that was not.
        let (task, other) = if task.generated { (other, task) } else { (task, other) };
        let path = path.index(task.index);
        let addition = problems.add(task.at, &path.key("id"), format!("two tasks have the id `{}`", task.task.id));
        addition.help(match other.generated {
            true => {
                format!("tasks[{}] has no id and is named so by its position; choose another one here", other.index)
            }
            false => format!("the other is tasks[{}]; an id names one task", other.index),
        });
    }
}

/// The values a task is repeated for.
struct Matrix {
    tenants: Option<Axis<Tenant>>,
    others: Vec<(String, Axis<Value>)>,
}

/// The values of one key, and how many tasks in a row have the same one.
struct Axis<T> {
    values: Vec<T>,
    repeat: usize,
}

impl<T: Clone> Axis<T> {
    fn pick(&self, n: usize) -> T {
        self.values[n / self.repeat % self.values.len()].clone()
    }
}

impl Matrix {
    /// `None` if there are more than can be counted.
    fn count(&self) -> Option<usize> {
        let tenants = self.tenants.as_ref().map_or(1, |axis| axis.values.len());
        self.others.iter().try_fold(tenants, |count, (_, axis)| count.checked_mul(axis.values.len()))
    }

    fn fill(&self, n: usize, task: &mut TaskDefinition) {
        if let Some(axis) = &self.tenants {
            task.tenant = Some(axis.pick(n));
        }
        task.matrix = self.others.iter().map(|(key, axis)| (key.clone(), axis.pick(n))).collect();
    }
}

/// The last key varies fastest, as the innermost of nested loops does.
fn matrix(node: &Node, path: &Path<'_>, text: &str, problems: &mut Problems) -> Option<Matrix> {
    let entries = decode::map(node, path, problems)?;
    if entries.is_empty() {
        problems.add(node.at(), path, "the matrix has no keys").help("such as `matrix: { tenant: [a, b] }`");
        return None;
    }
    let before = problems.count();
    let mut matrix = Matrix { tenants: None, others: Vec::new() };
    let mut repeat: usize = 1;
    for entry in entries.iter().rev() {
        let path = path.key(&entry.key);
        let Some(values) = values(entry, &path, problems) else { continue };
        if &*entry.key == "tenant" {
            let tenant = |(i, node)| tenant(node, &path.index(i), text, problems);
            let values = values.iter().enumerate().filter_map(tenant).collect();
            matrix.tenants = Some(Axis { values, repeat });
        } else {
            let values = values.iter().map(Node::to_value).collect();
            matrix.others.push((entry.key.to_string(), Axis { values, repeat }));
        }
        repeat = repeat.saturating_mul(values.len());
    }
    matrix.others.reverse();
    (problems.count() == before).then_some(matrix)
}

/// A function is given its input and its tenant, and so never sees the other keys of a matrix.
fn refuse_unseen(node: &Node, path: &Path<'_>, problems: &mut Problems) {
    let Kind::Map(entries) = &node.kind else { return };
    for entry in entries.iter().filter(|entry| &*entry.key != "tenant") {
        problems
            .add(
                entry.at as usize,
                &path.key(&entry.key),
                format!("a workflow does not see `{}` of a matrix", entry.key),
            )
            .help("only `tenant` may vary there; give each task an `input` of its own");
    }
}

fn values<'a>(entry: &'a Entry, path: &Path<'_>, problems: &mut Problems) -> Option<&'a [Node]> {
    let values = decode::list(&entry.value, path, problems)?;
    if values.is_empty() {
        problems
            .add(entry.value.at(), path, format!("`{}` has no values, so the matrix makes no tasks", entry.key))
            .help("give it at least one value, or leave the key out");
        return None;
    }
    Some(values)
}

/// A tenant as it is written: `007` is not 7.
fn tenant(node: &Node, path: &Path<'_>, text: &str, problems: &mut Problems) -> Option<Tenant> {
    let written = match &node.kind {
        Kind::Text(text) => text,
        Kind::Bool(_) | Kind::Number(_) => text.get(node.at()..node.end as usize)?,
        Kind::Null | Kind::List(_) | Kind::Map(_) => {
            decode::mismatch(node, path, "text", problems);
            return None;
        }
    };
    Tenant::parse(written).map_err(|error| problems.add(node.at(), path, error.to_string())).ok()
}
