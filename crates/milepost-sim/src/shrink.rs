//! The shortest schedule that still breaks a rule, found by leaving things out.

use std::sync::Arc;

use crate::schedule::{Network, Schedule};
use crate::trace::Trace;

/// So many schedules are tried at most.
const TRIES: usize = 2_000;

impl Schedule {
    /// A schedule with as little in it as possible that breaks a rule as this one does; none if this one breaks none.
    pub fn shortest(&self) -> Option<Schedule> {
        let broken = rule(&self.play(Trace::default()).violation?);
        let mut search = Search { broken, best: self.clone(), left: TRIES };
        while search.is_shorter() && search.left > 0 {}
        Some(search.best)
    }
}

/// What a violation is about, whichever task it names: the number of its rule, or else its last words.
fn rule(violation: &str) -> String {
    match violation.rfind('(') {
        Some(open) => violation[open..].to_owned(),
        None => violation.split(' ').skip(1).take(2).collect(),
    }
}

struct Search {
    broken: String,
    best: Schedule,
    left: usize,
}

impl Search {
    /// One pass over everything that might be left out; whether something was.
    fn is_shorter(&mut self) -> bool {
        let mut shorter = self.with_fewer_steps();
        shorter |= self.with(|schedule| schedule.network = Network::default());
        shorter |=
            self.with(|schedule| schedule.nodes.iter_mut().for_each(|node| (node.skew_ms, node.drift_ppm) = (0, 0)));
        for plan in 0..self.best.plans.len() {
            for task in (0..self.best.plans[plan].tasks.len()).rev() {
                shorter |= self.best.plans[plan].tasks.len() > 1
                    && self.with(|schedule| drop(Arc::make_mut(&mut schedule.plans[plan]).tasks.remove(task)));
            }
            let stages = self.best.plans[plan].definition.stages.len();
            shorter |= stages > 1
                && self.with(|schedule| {
                    let definition = &mut Arc::make_mut(&mut schedule.plans[plan]).definition;
                    definition.stages = definition.stages[..stages - 1].into();
                });
        }
        shorter
    }

    /// Halves first, then smaller and smaller parts.
    fn with_fewer_steps(&mut self) -> bool {
        let mut shorter = false;
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.steps.len() {
                let end = (at + size).min(self.best.steps.len());
                if self.with(|schedule| drop(schedule.steps.drain(at..end))) {
                    shorter = true;
                } else {
                    at = end;
                }
            }
            size /= 2;
        }
        shorter
    }

    /// Keeps the change if the rule is still broken by it.
    fn with(&mut self, change: impl FnOnce(&mut Schedule)) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let mut candidate = self.best.clone();
        let size = candidate.size();
        change(&mut candidate);
        let found = candidate.size() < size
            && candidate.play(Trace::default()).violation.is_some_and(|found| rule(&found) == self.broken);
        if found {
            self.best = candidate;
        }
        found
    }
}

impl Schedule {
    /// How much there is to read.
    fn size(&self) -> u64 {
        let Network { latency_ms, lost, answer_lost, late, repeated } = self.network;
        let network = u64::from(latency_ms + lost + answer_lost + late + repeated > 0);
        let clocks = self.nodes.iter().filter(|node| node.skew_ms != 0 || node.drift_ppm != 0).count();
        let work: usize = self.plans.iter().map(|plan| plan.tasks.len() + plan.definition.stages.len()).sum();
        network + (clocks + work + self.steps.len()) as u64
    }
}
