//! Where unique ids come from: of process starts, messages, signals and letters. A simulation brings its own, so that a
//! seed always plays the same.

use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub struct Ids(Arc<dyn Fn() -> String + Send + Sync>);

impl Ids {
    /// `next` never returns an id twice, nor one of another node. Ids are printable ASCII, at most 128 characters.
    pub fn from_fn(next: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    pub fn next(&self) -> String {
        (self.0)()
    }
}

impl Default for Ids {
    /// UUIDs that sort by time.
    fn default() -> Self {
        Self::from_fn(|| uuid::Uuid::now_v7().to_string())
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}
