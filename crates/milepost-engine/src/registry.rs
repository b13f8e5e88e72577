//! Which stage kinds there are, by name.

use std::collections::HashMap;
use std::sync::Arc;

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

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kinds.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}
