//! Which stage kinds and workflows there are, by name.

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::id::PlanId;
use milepost_core::plan::{Chain, ParseOptions, Plan, PlanErrors, StageDefinition, parse, parse_chain};
use serde_json::Value;

use milepost_core::plan::WorkflowRef;

use crate::files::Files;
use crate::stage::StageKind;
use crate::workflow::{StandIns, Workflow};

#[derive(Clone, Default)]
pub struct Registry {
    kinds: HashMap<String, Arc<dyn StageKind>>,
    workflows: HashMap<WorkflowRef, Arc<dyn Workflow>>,
    /// The keys of the map above, as every claim names them.
    known: Arc<[WorkflowRef]>,
    stand_ins: Arc<StandIns>,
    files: Option<Arc<dyn Files>>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, kind: Arc<dyn StageKind>) -> Self {
        self.kinds.insert(name.into(), kind);
        self
    }

    #[must_use]
    pub fn with_workflow(mut self, workflow: Arc<dyn Workflow>) -> Self {
        self.workflows.insert(workflow.reference(), workflow);
        let mut known: Vec<WorkflowRef> = self.workflows.keys().cloned().collect();
        known.sort_unstable();
        self.known = known.into();
        self
    }

    /// Stages of this node find the files of their tasks.
    #[must_use]
    pub fn with_files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = Some(files);
        self
    }

    pub(crate) fn files(&self) -> Option<Arc<dyn Files>> {
        self.files.clone()
    }

    /// For tests: stages of these names do what their stand-ins do.
    #[must_use]
    pub fn with_stand_ins(mut self, stand_ins: StandIns) -> Self {
        self.stand_ins = Arc::new(stand_ins);
        self
    }

    pub(crate) fn stand_ins(&self) -> &Arc<StandIns> {
        &self.stand_ins
    }

    pub fn workflow(&self, workflow: &WorkflowRef) -> Option<&Arc<dyn Workflow>> {
        self.workflows.get(workflow)
    }

    /// A node that knows workflows and no stage kinds leaves plans of stages to nodes that know some.
    pub fn runs_plans(&self) -> bool {
        self.workflows.is_empty() || !self.kinds.is_empty()
    }

    /// The workflows that this node can run.
    pub fn workflows(&self) -> Arc<[WorkflowRef]> {
        self.known.clone()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn StageKind>> {
        self.kinds.get(name)
    }

    /// Whether one of these keeps what it makes out of sight until its task completes.
    pub(crate) fn holds_back(&self, stages: &[StageDefinition]) -> bool {
        stages.iter().any(|stage| self.stage_holds_back(stage))
    }

    pub(crate) fn stage_holds_back(&self, stage: &StageDefinition) -> bool {
        // Most stages have no parameters at all, and nothing is asked about those.
        !stage.action.with.is_null()
            && self.get(&stage.action.uses).is_some_and(|kind| kind.holds_back(&stage.action.with))
    }

    /// Says what is wrong with a stage's kind or parameters, before a plan is accepted.
    pub fn check(&self, name: &str, with: &Value) -> Result<(), String> {
        match self.get(name) {
            Some(kind) => kind.check(with),
            None => Err(format!("there is no stage kind `{name}`; known are {}", self.names().join(", "))),
        }
    }

    /// Reads a plan that these kinds can run. One that gives itself no id gets a new one; `file` is its name in messages.
    pub fn read_plan(&self, file: &str, bytes: &[u8]) -> Result<Plan, PlanErrors> {
        let check = |name: &str, with: &Value| self.check(name, with);
        parse(bytes, &ParseOptions { check_action: &check, ..ParseOptions::new(file, new_plan_id()) })
    }

    /// Reads a chain that these kinds can run.
    pub fn read_chain(&self, file: &str, bytes: &[u8]) -> Result<Chain, PlanErrors> {
        let check = |name: &str, with: &Value| self.check(name, with);
        parse_chain(bytes, &ParseOptions { check_action: &check, ..ParseOptions::new(file, new_plan_id()) })
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kinds.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

fn new_plan_id() -> PlanId {
    let id = format!("plan-{}", uuid::Uuid::now_v7());
    PlanId::parse(&id).expect("`plan-` and a UUID are a plan id")
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("kinds", &self.names()).field("workflows", &self.known).finish()
    }
}
