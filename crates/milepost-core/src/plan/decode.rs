//! From values with a place to values with a type. Every mistake is noted and reading goes on, so that one look at the
//! file finds them all; what cannot be read is `None`.

use std::ops::RangeInclusive;

use super::errors::{Path, Problems, nearest, one_of, suggest};
use super::node::{Entry, Kind, Node};
use crate::time::Millis;

/// The keys of a map, each of which is asked for by name.
pub(super) struct Fields<'a> {
    pub(super) at: usize,
    pub(super) path: &'a Path<'a>,
    entries: &'a [Entry],
}

impl<'a> Fields<'a> {
    /// Notes every key that is not among `known`.
    pub(super) fn open(
        node: &'a Node,
        path: &'a Path<'a>,
        known: &[&'static str],
        problems: &mut Problems,
    ) -> Option<Fields<'a>> {
        let Kind::Map(entries) = &node.kind else {
            problems
                .add(node.at(), path, format!("expected a map, found {}", node.describe()))
                .help(format!("its keys are {}", one_of(known.iter().copied())));
            return None;
        };
        for entry in entries {
            if !known.contains(&&*entry.key) {
                problems
                    .add(entry.at as usize, &path.key(&entry.key), format!("unknown key `{}`", entry.key))
                    .help_with(|| suggest(&entry.key, known.iter().copied(), "expected"));
            }
        }
        Some(Fields { at: node.at(), path, entries })
    }

    /// The value of a key. A key without a value is as good as none, as in most YAML formats and JSON writers.
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// The key itself, even without a value.
    pub(super) fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| &*entry.key == key)
    }
}

/// Notes that `node` is not what was `expected`.
pub(super) fn mismatch(node: &Node, path: &Path<'_>, expected: &str, problems: &mut Problems) {
    let addition = problems.add(node.at(), path, format!("expected {expected}, found {}", node.describe()));
    if expected == "text" && matches!(node.kind, Kind::Bool(_) | Kind::Number(_)) {
        addition.help("write it in quotes");
    }
}

pub(super) fn mismatch_with(node: &Node, path: &Path<'_>, expected: &str, help: &str, problems: &mut Problems) {
    problems.add(node.at(), path, format!("expected {expected}, found {}", node.describe())).help(help);
}

pub(super) fn text<'a>(node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<&'a str> {
    match &node.kind {
        Kind::Text(text) => Some(text),
        _ => {
            mismatch(node, path, "text", problems);
            None
        }
    }
}

pub(super) fn flag(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<bool> {
    match node.kind {
        Kind::Bool(value) => Some(value),
        _ => {
            mismatch(node, path, "`true` or `false`", problems);
            None
        }
    }
}

pub(super) fn integer(
    node: &Node,
    path: &Path<'_>,
    range: RangeInclusive<i64>,
    problems: &mut Problems,
) -> Option<i64> {
    let number = match &node.kind {
        Kind::Number(number) => number.as_i64(),
        _ => None,
    };
    let number = number.filter(|number| range.contains(number));
    if number.is_none() {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        mismatch(node, path, &expected, problems);
    }
    number
}

pub(super) fn decimal(node: &Node, path: &Path<'_>, at_least: f64, problems: &mut Problems) -> Option<f64> {
    let number = match &node.kind {
        Kind::Number(number) => number.as_f64(),
        _ => None,
    };
    let number = number.filter(|number| number.is_finite() && *number >= at_least);
    if number.is_none() {
        mismatch(node, path, &format!("a number of at least {at_least:?}"), problems);
    }
    number
}

pub(super) fn duration(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Millis> {
    let Kind::Text(text) = &node.kind else {
        mismatch(node, path, "a duration such as `250ms`, `3s`, `5m` or `1h`", problems);
        return None;
    };
    text.parse().map_err(|error: crate::time::InvalidDuration| problems.add(node.at(), path, error.to_string())).ok()
}

/// A length of time for something to happen in.
pub(super) fn timeout(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Millis> {
    let timeout = duration(node, path, problems)?;
    if timeout == Millis::ZERO {
        problems.add(node.at(), path, "a timeout must be longer than nothing").help("give it a length such as `5m`");
        return None;
    }
    Some(timeout)
}

pub(super) fn choice<T: Copy>(
    node: &Node,
    path: &Path<'_>,
    choices: &[(&'static str, T)],
    problems: &mut Problems,
) -> Option<T> {
    let words = || choices.iter().map(|(word, _)| *word);
    let Kind::Text(text) = &node.kind else {
        mismatch(node, path, &one_of(words()), problems);
        return None;
    };
    let found = choices.iter().find(|(word, _)| *word == &**text);
    if found.is_none() {
        let addition =
            problems.add(node.at(), path, format!("expected {}, found {}", one_of(words()), node.describe()));
        if let Some(near) = nearest(text, words()) {
            addition.help(format!("did you mean `{near}`?"));
        }
    }
    found.map(|(_, value)| *value)
}

pub(super) fn list<'a>(node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<&'a [Node]> {
    match &node.kind {
        Kind::List(items) => Some(items),
        _ => {
            mismatch(node, path, "a list", problems);
            None
        }
    }
}

pub(super) fn map<'a>(node: &'a Node, path: &Path<'_>, problems: &mut Problems) -> Option<&'a [Entry]> {
    match &node.kind {
        Kind::Map(entries) => Some(entries),
        _ => {
            mismatch(node, path, "a map", problems);
            None
        }
    }
}

/// A name, checked by its own rules.
pub(super) fn name<T>(
    node: &Node,
    path: &Path<'_>,
    parse: impl FnOnce(&str) -> Result<T, crate::id::InvalidName>,
    problems: &mut Problems,
) -> Option<T> {
    let text = text(node, path, problems)?;
    parse(text).map_err(|error| problems.add(node.at(), path, error.to_string())).ok()
}
