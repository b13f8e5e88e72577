//! Lists of stages: what each does, how often and how long it may try, and how it is undone.

use std::sync::Arc;

use super::actions::{self, ACTION_KEYS};
use super::decode::{self, Fields};
use super::definition::{Action, StageDefinition, StageList};
use super::errors::{Path, Problems};
use super::node::Node;
use super::order::Order;
use super::parse::CheckAction;
use super::scope::Scope;
use crate::retry::{RetryPolicy, Strategy};
use crate::time::Millis;

pub(super) const STAGE_KEYS: [&str; 11] =
    ["name", "run", "env", "http", "uses", "with", "retry", "timeout", "needs", "if", "rollback"];
pub(super) const RETRY_KEYS: [&str; 7] =
    ["max_attempts", "strategy", "base", "multiplier", "max", "jitter", "fatal_exit_codes"];
const STRATEGIES: [(&str, Strategy); 3] =
    [("fixed", Strategy::Fixed), ("linear", Strategy::Linear), ("exponential", Strategy::Exponential)];
const MAX_STAGES: usize = 1000;
/// `run:` says "skip" with this one.
const SKIP_EXIT_CODE: i64 = 77;

/// What holds for every stage that does not say otherwise, and who knows the stage kinds.
pub(super) struct StageRules<'a> {
    pub(super) timeout: Millis,
    pub(super) retry: RetryPolicy,
    pub(super) check: CheckAction<'a>,
}

impl StageRules<'_> {
    /// The stages of a list; `None` if anything is wrong with them.
    pub(super) fn list(&self, node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<StageList> {
        let before = problems.count();
        let items = decode::list(node, path, problems)?;
        if items.len() > MAX_STAGES {
            problems.add(node.at(), path, format!("{} stages; at most {MAX_STAGES} are allowed", items.len()));
            return None;
        }
        let order = Order::read(items, path, problems);
        let mut stages = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let path = path.index(i);
            let scope = Scope { order: &order, stage: i, after_stage: false };
            stages.extend(self.stage(item, &path, scope, problems));
        }
        (problems.count() == before).then(|| Arc::from(stages))
    }

    fn stage(
        &self,
        item: &Node,
        path: &Path<'_>,
        scope: Scope<'_>,
        problems: &mut Problems,
    ) -> Option<StageDefinition> {
        let fields = Fields::open(item, path, &STAGE_KEYS, problems)?;
        let action = self.action(&fields, "the stage", scope, problems);
        let condition = fields.get("if").and_then(|node| {
            let path = path.key("if");
            let text = decode::text(node, &path, problems)?;
            scope.check_condition(text, node.at(), &path, problems);
            Some(text.to_owned())
        });
        let retry = match fields.get("retry") {
            Some(node) => retry(node, &path.key("retry"), &self.retry, problems),
            None => Some(self.retry.clone()),
        };
        let timeout = match fields.get("timeout") {
            Some(node) => decode::timeout(node, &path.key("timeout"), problems),
            None => Some(self.timeout),
        };
        let rollback = fields.get("rollback").and_then(|node| {
            let path = path.key("rollback");
            let fields = Fields::open(node, &path, &ACTION_KEYS, problems)?;
            self.action(&fields, "the rollback", Scope { after_stage: true, ..scope }, problems)
        });
        Some(StageDefinition {
            name: scope.order.name(scope.stage)?.clone(),
            action: action?,
            needs: scope.order.needs(scope.stage),
            condition,
            retry: retry?,
            timeout,
            rollback,
        })
    }

    fn action(&self, fields: &Fields<'_>, what: &str, scope: Scope<'_>, problems: &mut Problems) -> Option<Action> {
        scope.check_action(fields, problems);
        actions::action(fields, what, self.check, problems)
    }
}

/// `base`, with those parts replaced that are given.
pub(super) fn retry(node: &Node, path: &Path<'_>, base: &RetryPolicy, problems: &mut Problems) -> Option<RetryPolicy> {
    let fields = Fields::open(node, path, &RETRY_KEYS, problems)?;
    let mut policy = base.clone();
    if let Some(node) = fields.get("max_attempts") {
        let attempts = decode::integer(node, &path.key("max_attempts"), 1..=i64::from(u32::MAX), problems)?;
        policy.max_attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
    }
    if let Some(node) = fields.get("strategy") {
        policy.strategy = decode::choice(node, &path.key("strategy"), &STRATEGIES, problems)?;
    }
    if let Some(node) = fields.get("base") {
        policy.base = decode::duration(node, &path.key("base"), problems)?;
    }
    if let Some(node) = fields.get("multiplier") {
        policy.multiplier = decode::decimal(node, &path.key("multiplier"), 1.0, problems)?;
    }
    if let Some(node) = fields.get("max") {
        policy.max = Some(decode::duration(node, &path.key("max"), problems)?);
    }
    if let Some(node) = fields.get("jitter") {
        policy.jitter = decode::flag(node, &path.key("jitter"), problems)?;
    }
    if let Some(node) = fields.get("fatal_exit_codes") {
        policy.fatal_exit_codes = exit_codes(node, &path.key("fatal_exit_codes"), problems)?;
    }
    Some(policy)
}

fn exit_codes(node: &Node, path: &Path<'_>, problems: &mut Problems) -> Option<Vec<i32>> {
    let mut codes = Vec::new();
    for (i, item) in decode::list(node, path, problems)?.iter().enumerate() {
        let path = path.index(i);
        let Some(code) = decode::integer(item, &path, 1..=255, problems) else { continue };
        if code == SKIP_EXIT_CODE {
            problems.add(item.at(), &path, "exit code 77 means that the stage is skipped; it cannot be fatal");
        }
        codes.extend(i32::try_from(code));
    }
    Some(codes)
}
