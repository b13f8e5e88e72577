//! Which stage kinds there are, by name.

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::id::PlanId;
use milepost_core::plan::{ParseOptions, Plan, PlanErrors, parse};
use serde_json::Value;

use crate::stage::StageKind;

#[derive(Clone, Default)]
pub struct Registry {
    kinds: HashMap<String, Arc<dyn StageKind>>,
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

    pub fn get(&self, name: &str) -> Option<&Arc<dyn StageKind>> {
        self.kinds.get(name)
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
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}
