//! Which rows of a range are not the same on both sides.

use std::collections::HashMap;

use super::source::Source;
use super::walk::Walk;
use crate::batch::Value;
use crate::error::TableError;

/// So many are named.
const NAMED: usize = 5;
/// A target that has far more rows than its source need not be held in memory to be called different.
const MOST: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Differences {
    /// In the source alone.
    pub(super) missing: Vec<Vec<Value>>,
    /// In the target alone.
    added: Vec<Vec<Value>>,
    /// On both sides, with other values.
    changed: Vec<Vec<Value>>,
}

impl Differences {
    pub(super) async fn between(source: &mut Walk, target: &mut Walk) -> Result<Self, TableError> {
        let mut differences = Differences::default();
        let mut there = HashMap::new();
        while let Some(row) = target.step().await? {
            there.insert(name(&row.key), row);
            if there.len() == MOST {
                break;
            }
        }
        while let Some(row) = source.step().await? {
            match there.remove(&name(&row.key)) {
                None => differences.missing.push(row.key),
                Some(found) if found.number != row.number => differences.changed.push(row.key),
                Some(_) => {}
            }
        }
        differences.added = there.into_values().map(|row| row.key).collect();
        differences.added.sort_by_key(|key| name(key));
        Ok(differences)
    }

    pub(super) fn are_none(&self) -> bool {
        self.only_missing() && self.missing.is_empty()
    }

    pub(super) fn only_missing(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty()
    }

    pub(super) fn in_words(&self, source: &Source) -> String {
        let groups = [("differs", &self.changed), ("is missing", &self.missing), ("is too many", &self.added)];
        let named = groups.iter().flat_map(|(what, keys)| {
            keys.iter().take(NAMED).map(move |key| format!("the row with {} {what}", source.key_in_words(key)))
        });
        let named: Vec<String> = named.take(NAMED).collect();
        let all = self.changed.len() + self.missing.len() + self.added.len();
        let more = if all > named.len() { format!(" and {} more", all - named.len()) } else { String::new() };
        format!("{}{more}", named.join(", "))
    }
}

fn name(key: &[Value]) -> String {
    serde_json::to_string(key).expect("a key is JSON")
}
