//! Plans whose tasks run a function in place of stages: which one, and what such a plan has no use for.

use std::sync::Arc;

use super::decode::{self, Fields};
use super::definition::WorkflowRef;
use super::errors::{Path, Problems};
use super::node::{Kind, Node};

pub(super) const WORKFLOW_KEYS: [&str; 2] = ["name", "version"];
const LONGEST_NAME: usize = 256;

/// `workflow: NAME`, or `workflow: { name: NAME, version: N }`.
pub(super) fn workflow(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<WorkflowRef> {
    match &node.kind {
        Kind::Text(_) => Some(WorkflowRef::first(name(node, path, problems)?)),
        Kind::Map(_) => {
            let fields = Fields::open(node, path, &WORKFLOW_KEYS, problems)?;
            let Some(node) = fields.get("name") else {
                problems.add(fields.at, path, "the workflow has no name").help("expected `name: checkout`");
                return None;
            };
            let mut workflow = WorkflowRef::first(name(node, &path.key("name"), problems)?);
            if let Some(node) = fields.get("version") {
                let version = decode::integer(node, &path.key("version"), 0..=i64::from(u32::MAX), problems)?;
                workflow.version = u32::try_from(version).ok()?;
            }
            Some(workflow)
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) => {
            let help = "such as `workflow: checkout` or `workflow: { name: checkout, version: 2 }`";
            decode::mismatch_with(node, path, "the name of a workflow", help, problems);
            None
        }
    }
}

/// As wide as what a program may call its functions.
fn name(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Arc<str>> {
    let text = decode::text(node, path, problems)?;
    if text.is_empty() || text.len() > LONGEST_NAME || text.chars().any(char::is_control) {
        problems
            .add(node.at(), path, format!("{} cannot be the name of a workflow", node.describe()))
            .help(format!("expected the name of a function, of at most {LONGEST_NAME} bytes"));
        return None;
    }
    Some(text.into())
}

/// What a plan says about stages means nothing where a function decides what they are.
pub(super) fn refuse_beside(fields: &Fields<'_>, problems: &mut Problems) {
    for (key, help) in [
        ("stages", "remove `stages`, or remove `workflow` to run them"),
        ("defaults", "remove `defaults`: the function says how its stages are tried again"),
        ("on_failure", "remove `on_failure`: what the function has a rollback for is undone when it fails"),
    ] {
        if let Some(entry) = fields.entry(key).filter(|entry| !entry.value.is_null()) {
            let path = fields.path.key(key);
            problems.add(entry.at as usize, &path, format!("a plan with a `workflow` has no `{key}`")).help(help);
        }
    }
}
