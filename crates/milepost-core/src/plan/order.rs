//! Which stage waits for which: the names of a list, its `needs`, and that they never go round in a circle.

use std::collections::HashMap;

use super::decode;
use super::errors::{Path, Problems, suggest};
use super::node::{Kind, Node};
use crate::id::StageName;

/// The names of a list of stages and what each waits for, as far as they could be read.
pub(super) struct Order {
    names: Vec<Option<StageName>>,
    needs: Vec<Vec<Need>>,
    /// Whether every name and need could be read; if not, nothing may be concluded from what is missing.
    whole: bool,
}

struct Need {
    stage: usize,
    /// Where it is asked for.
    at: usize,
}

impl Order {
    pub(super) fn read(items: &[Node], path: &Path<'_>, problems: &mut Problems) -> Order {
        let before = problems.count();
        let mut order =
            Order { names: Vec::with_capacity(items.len()), needs: Vec::with_capacity(items.len()), whole: true };
        let mut places: HashMap<StageName, usize> = HashMap::new();
        for (i, item) in items.iter().enumerate() {
            let path = path.index(i);
            let name = read_name(item, &path, problems);
            if let Some(name) = &name
                && let Some(first) = places.insert(name.clone(), i)
            {
                let at = value(item, "name").map_or(item.at(), Node::at);
                problems
                    .add(at, &path.key("name"), format!("a second stage is named `{name}`"))
                    .help(format!("the first is stage {} of the list; names are unique in a task", first + 1));
            }
            order.names.push(name);
        }
        for (i, item) in items.iter().enumerate() {
            let needs = order.read_needs(i, item, &places, &path.index(i), problems);
            order.needs.push(needs);
        }
        order.refuse_cycle(path, problems);
        order.whole = problems.count() == before;
        order
    }

    pub(super) fn name(&self, stage: usize) -> Option<&StageName> {
        self.names[stage].as_ref()
    }

    pub(super) fn needs(&self, stage: usize) -> Vec<usize> {
        self.needs[stage].iter().map(|need| need.stage).collect()
    }

    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known.as_ref().is_some_and(|known| known.as_str() == name))
    }

    pub(super) fn known_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.iter().flatten().map(StageName::as_str)
    }

    /// Whether `stage` starts only after `other` has ended, or may do so once the mistakes are gone.
    pub(super) fn waits_for(&self, stage: usize, other: usize) -> bool {
        if !self.whole {
            return true;
        }
        let mut seen = vec![false; self.needs.len()];
        let mut open = vec![stage];
        while let Some(next) = open.pop() {
            for need in &self.needs[next] {
                if need.stage == other {
                    return true;
                }
                if !std::mem::replace(&mut seen[need.stage], true) {
                    open.push(need.stage);
                }
            }
        }
        false
    }

    fn read_needs(
        &self,
        stage: usize,
        item: &Node,
        places: &HashMap<StageName, usize>,
        path: &Path<'_>,
        problems: &mut Problems,
    ) -> Vec<Need> {
        let path = path.key("needs");
        let Some(node) = value(item, "needs") else {
            return stage.checked_sub(1).map(|before| Need { stage: before, at: item.at() }).into_iter().collect();
        };
        let Kind::List(names) = &node.kind else {
            decode::mismatch_with(
                node,
                &path,
                "a list of stage names",
                "`needs: [push]` waits for `push`, `needs: []` for nothing; left out, it is the stage before",
                problems,
            );
            return Vec::new();
        };
        let mut needs: Vec<Need> = Vec::with_capacity(names.len());
        for (i, node) in names.iter().enumerate() {
            let path = path.index(i);
            let Some(name) = decode::text(node, &path, problems) else { continue };
            match places.get(name) {
                None => {
                    problems
                        .add(node.at(), &path, format!("there is no stage `{name}`"))
                        .help_with(|| suggest(name, self.known_names(), "the stages are"));
                }
                Some(found) if *found == stage => {
                    problems.add(node.at(), &path, format!("stage `{name}` cannot wait for itself"));
                }
                Some(found) if needs.iter().any(|need| need.stage == *found) => {
                    problems.add(node.at(), &path, format!("`{name}` is named twice")).help("name it once");
                }
                Some(found) => needs.push(Need { stage: *found, at: node.at() }),
            }
        }
        needs
    }

    fn refuse_cycle(&self, path: &Path<'_>, problems: &mut Problems) {
        let Some(cycle) = self.cycle() else { return };
        let name = |stage: usize| self.names[stage].as_ref().map_or("?", StageName::as_str);
        let round: Vec<&str> = cycle.iter().chain(&cycle[..1]).map(|stage| name(*stage)).collect();
        let (first, next) = (cycle[0], cycle[1 % cycle.len()]);
        let at = self.needs[first].iter().find(|need| need.stage == next).map_or(0, |need| need.at);
        let stage = path.index(first);
        problems
            .add(at, &stage.key("needs"), format!("these stages wait for each other: {}", round.join(" -> ")))
            .help(
                "remove one of these needs; a stage without `needs` waits for the one before it, `needs: []` for none",
            );
    }

    /// Stages each of which waits for the next, and the last for the first; starts with the one that is first in the list.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut done = vec![false; self.needs.len()];
        for start in 0..self.needs.len() {
            let mut way: Vec<(usize, usize)> = vec![(start, 0)];
            while let Some((stage, next)) = way.last_mut() {
                let Some(need) = self.needs[*stage].get(*next).filter(|_| !done[*stage]) else {
                    done[*stage] = true;
                    way.pop();
                    continue;
                };
                *next += 1;
                if let Some(again) = way.iter().position(|(on_way, _)| *on_way == need.stage) {
                    let mut cycle: Vec<usize> = way[again..].iter().map(|(stage, _)| *stage).collect();
                    let smallest = (0..cycle.len()).min_by_key(|i| cycle[*i]).unwrap_or(0);
                    cycle.rotate_left(smallest);
                    return Some(cycle);
                }
                way.push((need.stage, 0));
            }
        }
        None
    }
}

fn read_name(item: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<StageName> {
    // A stage that is no map is noted where its keys are read.
    let Kind::Map(_) = &item.kind else { return None };
    match value(item, "name").filter(|node| !node.is_null()) {
        Some(node) => decode::name(node, &path.key("name"), |text| StageName::parse(text), problems),
        None => {
            problems.add(item.at(), path, "the stage has no `name`").help("give it one, unique in the list");
            None
        }
    }
}

fn value<'a>(item: &'a Node, key: &str) -> Option<&'a Node> {
    match &item.kind {
        Kind::Map(entries) => entries.iter().find(|entry| &*entry.key == key).map(|entry| &entry.value),
        _ => None,
    }
}
