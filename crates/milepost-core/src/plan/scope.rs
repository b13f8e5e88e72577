//! What the templates of a stage may read: the task's own values, and the outputs of stages that have ended by then.

use super::actions;
use super::decode::Fields;
use super::errors::{Path, Problems, suggest};
use super::order::Order;
use crate::template::{self, Names};

const NAMES: [&str; 7] = ["plan", "task", "tenant", "input", "matrix", "file", "stages"];

#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) order: &'a Order,
    pub(super) stage: usize,
    /// A rollback may read what its own stage gave.
    pub(super) after_stage: bool,
}

impl Scope<'_> {
    pub(super) fn check_action(&self, fields: &Fields<'_>, problems: &mut Problems) {
        actions::each_template(fields, &mut |text, at, path| match template::names_in_template(text) {
            Ok(names) => self.check(&names, at, path, problems),
            Err(error) => {
                problems.add(at, path, format!("bad template: {error}")).help("a literal `{{` is written `{{ '{{' }}`");
            }
        });
    }

    pub(super) fn check_condition(&self, text: &str, at: usize, path: &Path<'_>, problems: &mut Problems) {
        match template::names_in_expression(text) {
            Ok(names) => self.check(&names, at, path, problems),
            Err(error) => problems
                .add(at, path, format!("bad expression: {error}"))
                .help("such as `input.enabled` or `stages.build.outputs.changed == true`"),
        }
    }

    fn check(&self, names: &Names, at: usize, path: &Path<'_>, problems: &mut Problems) {
        for stage in &names.stages {
            if let Some(known) = self.meant_hyphenated(stage) {
                // `stages.a-b` reads as `stages.a` less `b`: one mistake, not two.
                problems
                    .add(at, path, format!("there is no stage `{stage}` to read outputs from"))
                    .help(format!("a name with a hyphen is written `stages['{known}']`"));
                return;
            }
            self.check_stage(stage, at, path, problems);
        }
        for name in names.top.iter().filter(|name| !NAMES.contains(&name.as_str())) {
            problems
                .add(at, path, format!("unknown name `{name}` in the template"))
                .help_with(|| suggest(name, NAMES.into_iter(), "a text needs quotes; a name is"));
        }
    }

    fn meant_hyphenated(&self, name: &str) -> Option<&str> {
        let hyphenated = self.order.known_names().find(|known| known.starts_with(&format!("{name}-")));
        hyphenated.filter(|_| self.order.index_of(name).is_none())
    }

    fn check_stage(&self, name: &str, at: usize, path: &Path<'_>, problems: &mut Problems) {
        let Some(other) = self.order.index_of(name) else {
            problems
                .add(at, path, format!("there is no stage `{name}` to read outputs from"))
                .help_with(|| suggest(name, self.order.known_names(), "the stages are"));
            return;
        };
        let ended = if other == self.stage { self.after_stage } else { self.order.waits_for(self.stage, other) };
        if ended {
            return;
        }
        let (message, help) = if other == self.stage {
            (format!("stage `{name}` cannot read its own outputs"), "only its rollback can".to_owned())
        } else {
            let message = format!("stage `{name}` may not have ended when this is read");
            (message, format!("add `{name}` to `needs`, or to those of a stage that this one waits for"))
        };
        problems.add(at, path, message).help(help);
    }
}
