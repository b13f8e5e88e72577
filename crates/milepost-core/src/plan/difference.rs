//! What changed between two readings of a plan, in words for the person who changed it.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::definition::{Plan, StageDefinition, TaskDefinition};
use crate::time::Millis;

/// Lengths of time are stored as numbers; these are shown as they are written.
const DURATIONS: [&str; 4] = ["task_timeout", "timeout", "retry.base", "retry.max"];
const LONGEST_SHOWN: usize = 60;

/// The first thing in which `new` differs from `old`: settings first, then the plan's stages, then the tasks.
pub fn first_difference(old: &Plan, new: &Plan) -> Option<String> {
    if old == new {
        return None;
    }
    let (was, is) = (&old.definition, &new.definition);
    if was.id != is.id {
        return Some(format!("plan was `{}`, is `{}`", was.id, is.id));
    }
    changed("", &json!(was.settings), &json!(is.settings))
        .or_else(|| changed("workflow", &json!(was.workflow), &json!(is.workflow)))
        .or_else(|| changed("parent", &json!(was.parent), &json!(is.parent)))
        .or_else(|| in_stages("", &was.stages, &is.stages))
        .or_else(|| in_tasks(&old.tasks, &new.tasks))
}

fn in_stages(prefix: &str, old: &[StageDefinition], new: &[StageDefinition]) -> Option<String> {
    for i in 0..old.len().max(new.len()) {
        match (old.get(i), new.get(i)) {
            (Some(was), None) => return Some(format!("{prefix}stages[{i}] `{}` is gone", was.name)),
            (None, Some(is)) => return Some(format!("{prefix}stages[{i}] `{}` is new", is.name)),
            (Some(was), Some(is)) if was.name != is.name => {
                return Some(format!("{prefix}stages[{i}] was `{}`, is `{}`", was.name, is.name));
            }
            (Some(was), Some(is)) => {
                let found = changed("", &shown_stage(was, old), &shown_stage(is, new));
                if let Some(found) = found {
                    return Some(format!("{prefix}stages[{i}] `{}`: {found}", is.name));
                }
            }
            (None, None) => {}
        }
    }
    None
}

/// A stage with the names of what it needs, which mean more to a person than indices.
fn shown_stage(stage: &StageDefinition, all: &[StageDefinition]) -> Value {
    let mut shown = json!(stage);
    let needs: Vec<&str> = stage.needs.iter().filter_map(|i| all.get(*i)).map(|need| need.name.as_str()).collect();
    shown["needs"] = json!(needs);
    shown
}

fn in_tasks(old: &[TaskDefinition], new: &[TaskDefinition]) -> Option<String> {
    let differs = old.iter().zip(new).position(|(was, is)| was != is).unwrap_or(old.len().min(new.len()));
    match (old.get(differs), new.get(differs)) {
        (None, None) => None,
        (Some(was), None) => Some(format!("task `{}` is gone", was.id)),
        (None, Some(is)) => Some(format!("task `{}` is new", is.id)),
        (Some(was), Some(is)) if was.id == is.id => in_task(was, is),
        (Some(was), Some(is)) => {
            let ids =
                |tasks: &[TaskDefinition], id| tasks.iter().map(|task| &task.id).collect::<HashSet<_>>().contains(id);
            Some(match (ids(old, &is.id), ids(new, &was.id)) {
                (false, _) => format!("task `{}` is new", is.id),
                (true, false) => format!("task `{}` is gone", was.id),
                (true, true) => format!("task {} was `{}`, is `{}`", differs + 1, was.id, is.id),
            })
        }
    }
}

fn in_task(old: &TaskDefinition, new: &TaskDefinition) -> Option<String> {
    let prefix = format!("task `{}` ", new.id);
    let bare = |task: &TaskDefinition| json!(TaskDefinition { stages: None, ..task.clone() });
    if let Some(found) = changed("", &bare(old), &bare(new)) {
        return Some(format!("{}: {found}", prefix.trim_end()));
    }
    match (&old.stages, &new.stages) {
        (Some(was), Some(is)) => in_stages(&prefix, was, is),
        (None, Some(_)) => Some(format!("{prefix}now has stages of its own")),
        (Some(_), None) => Some(format!("{prefix}no longer has stages of its own")),
        (None, None) => None,
    }
}

/// The first value that differs, and where it is.
fn changed(path: &str, old: &Value, new: &Value) -> Option<String> {
    let none = Value::Null;
    match (old, new) {
        _ if old == new => None,
        (Value::Object(was), Value::Object(is)) => keys(was, is).find_map(|key| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            changed(&path, was.get(key).unwrap_or(&none), is.get(key).unwrap_or(&none))
        }),
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            (0..was.len()).find_map(|i| changed(&format!("{path}[{i}]"), &was[i], &is[i]))
        }
        (was, Value::Null) => Some(format!("{path} was {}, is left out", shown(path, was))),
        (Value::Null, is) => Some(format!("{path} was left out, is {}", shown(path, is))),
        (was, is) => Some(format!("{path} was {}, is {}", shown(path, was), shown(path, is))),
    }
}

fn keys<'a>(old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> impl Iterator<Item = &'a String> {
    old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)))
}

fn shown(path: &str, value: &Value) -> String {
    if let Some(millis) = value.as_u64().filter(|_| DURATIONS.contains(&path)) {
        return Millis::new(millis).to_string();
    }
    let text = value.to_string();
    if text.chars().count() <= LONGEST_SHOWN {
        return text;
    }
    text.chars().take(LONGEST_SHOWN - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PlanId;
    use crate::plan::{ParseOptions, parse};

    const PLAN: &str = "
plan: p
max_concurrency: 5
stages:
  - { name: push, run: ./push.sh, env: { A: b } }
  - { name: verify, uses: noop, with: { x: [1, 2] } }
tasks:
  - { id: t-1, tenant: a, input: { version: 1 } }
  - { id: t-2, stages: [{ name: own, uses: noop }] }
  - { id: t-3 }
";

    fn plan(text: &str) -> Plan {
        parse(text.as_bytes(), &ParseOptions::new("f", PlanId::parse("new").unwrap())).unwrap()
    }

    #[test]
    fn the_first_difference_is_named_in_words() {
        for (from, to, expected) in [
            ("plan: p", "plan: q", "plan was `p`, is `q`"),
            ("max_concurrency: 5", "max_concurrency: 6", "max_concurrency was 5, is 6"),
            ("max_concurrency: 5", "max_concurrency: 5\ntask_timeout: 90s", "task_timeout was left out, is 90s"),
            ("name: verify,", "name: verify, timeout: 10m,", "stages[1] `verify`: timeout was 5m, is 10m"),
            ("name: verify,", "name: verify, retry: { base: 2s },", "stages[1] `verify`: retry.base was 1s, is 2s"),
            ("name: verify,", "name: verify, needs: [],", "stages[1] `verify`: needs was [\"push\"], is []"),
            ("name: verify,", "name: check,", "stages[1] was `verify`, is `check`"),
            ("[1, 2]", "[1, 3]", "stages[1] `verify`: with.x[1] was 2, is 3"),
            ("A: b", "A: c", "stages[0] `push`: with.env.A was \"b\", is \"c\""),
            ("tasks:", "  - { name: more, uses: noop }\ntasks:", "stages[2] `more` is new"),
            ("version: 1", "version: 2", "task `t-1`: input.version was 1, is 2"),
            ("tenant: a, ", "", "task `t-1`: tenant was \"a\", is left out"),
            ("name: own,", "name: own, timeout: 1s,", "task `t-2` stages[0] `own`: timeout was 5m, is 1s"),
            (", stages: [{ name: own, uses: noop }]", "", "task `t-2` no longer has stages of its own"),
            ("  - { id: t-3 }\n", "  - { id: t-3 }\n  - { id: t-4 }\n", "task `t-4` is new"),
            ("  - { id: t-3 }\n", "", "task `t-3` is gone"),
            ("id: t-3", "id: t-9", "task `t-9` is new"),
        ] {
            assert!(PLAN.contains(from), "{from}");
            let (old, new) = (plan(PLAN), plan(&PLAN.replacen(from, to, 1)));
            assert_eq!(first_difference(&old, &new).as_deref(), Some(expected));
            assert!(first_difference(&new, &old).is_some(), "{expected}");
        }
        assert_eq!(first_difference(&plan(PLAN), &plan(&format!("# a comment\n{PLAN}"))), None);
    }
}
