//! What runs: claims tasks, runs their stages, waits for retries, and commits every outcome before going on.

mod attempt;
mod clock;
mod engine;
mod explain;
mod feed;
mod guards;
mod health;
mod ledger;
mod meters;
mod nodes;
mod precise;
mod registry;
mod report;
mod runner;
mod verbs;

pub mod owner;
pub mod stage;
pub mod workflow;

pub use clock::Clock;
pub use engine::{Engine, EngineError, Options};
pub use explain::explain;
pub use feed::{Feed, FeedItem, Handful, Watch};
pub use health::OnStoreLoss;
pub use meters::{BOUNDS_MS, Meters, Reading, Readings};
pub use registry::Registry;
pub use verbs::{Effect, Target, Verb, VerbError};
