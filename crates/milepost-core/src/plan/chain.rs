//! Chains: files with stages and no tasks, which messages make tasks of.

use super::decode::Fields;
use super::definition::{Settings, StageList, Trigger};
use super::errors::{Path, PlanErrors, Problem, Problems};
use super::node::Node;
use super::parse::{ParseOptions, read_file, stage_rules, task_timeout};
use crate::time::Millis;

const CHAIN_KEYS: [&str; 3] = ["task_timeout", "defaults", "stages"];
/// How long a chain may take unless it says otherwise.
const TASK_TIMEOUT: Millis = Millis::from_secs(30 * 60);

/// What the tasks of a chain share.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    pub settings: Settings,
    pub stages: StageList,
}

/// The chain that a YAML or JSON file describes; what it says means the same as in a plan file.
pub fn parse_chain(source: &[u8], options: &ParseOptions<'_>) -> Result<Chain, PlanErrors> {
    read_file(source, options, read_chain)
}

fn read_chain(root: &Node, _text: &str, options: &ParseOptions<'_>, problems: &mut Problems) -> Option<Chain> {
    let path = Path::Root;
    if root.is_null() {
        *problems = Problem::in_text(0, "the file has no chain in it").help("expected at least `stages:`").into();
        return None;
    }
    let fields = Fields::open(root, &path, &CHAIN_KEYS, problems)?;
    let task_timeout = task_timeout(&fields, problems).or(Some(TASK_TIMEOUT));
    let rules = stage_rules(&fields, options.check_action, problems);
    let Some(node) = fields.get("stages") else {
        problems.add(fields.at, &path, "the chain has no stages").help("add `stages:`, as in a plan file");
        return None;
    };
    let stages = rules.list(node, &path.key("stages"), problems)?;
    Some(Chain { settings: Settings { trigger: Trigger::Message, task_timeout, ..Settings::default() }, stages })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PlanId;

    fn read(text: &str) -> Result<Chain, PlanErrors> {
        parse_chain(text.as_bytes(), &ParseOptions::new("chain.yaml", PlanId::parse("plan").unwrap()))
    }

    #[test]
    fn a_chain_has_stages_and_half_an_hour() {
        let chain = read("stages:\n  - { name: scan, run: ./scan.sh }\n").unwrap();
        assert_eq!((chain.stages.len(), chain.settings.trigger), (1, Trigger::Message));
        assert_eq!(chain.settings.task_timeout, Some(TASK_TIMEOUT));
        let chain = read("task_timeout: 2m\nstages:\n  - { name: scan, run: ./scan.sh }\n").unwrap();
        assert_eq!(chain.settings.task_timeout, Some(Millis::from_secs(120)));
    }

    #[test]
    fn what_belongs_to_a_plan_is_refused_where_it_stands() {
        let errors = read("stages:\n  - { name: scan, run: ./scan.sh }\ntasks:\n  - { id: a }\n").unwrap_err();
        assert_eq!((errors.errors[0].line, errors.errors[0].column), (3, 1));
        let errors = read("task_timeout: 2m\n").unwrap_err();
        assert_eq!(errors.errors[0].message, "the chain has no stages");
    }
}
