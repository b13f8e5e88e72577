//! What runs: claims tasks, runs their stages, waits for retries, and commits every outcome before going on.

mod attempt;
mod chains;
mod clock;
mod consumer;
mod dead_letters;
mod engine;
mod explain;
mod feed;
mod files;
mod guards;
mod health;
mod held_back;
mod identity;
mod interrupting;
mod ledger;
mod live;
mod messages;
mod meters;
mod nodes;
mod precise;
mod publishing;
mod registry;
mod report;
mod runner;
mod showing;
mod spawner;
mod verbs;

pub mod owner;
pub mod stage;
pub mod workflow;

pub use chains::Chains;
pub use clock::Clock;
pub use consumer::{Consumer, ConsumerStatus};
pub use dead_letters::Redriven;
pub use engine::{Engine, EngineError, Options};
pub use explain::explain;
pub use feed::{Feed, FeedItem, Handful, Watch};
pub use files::{Brought, Files, TaskFile};
pub use health::OnStoreLoss;
pub use messages::Received;
pub use meters::{BOUNDS_MS, Meters, Reading, Readings};
pub use registry::Registry;
pub use spawner::Spawner;
pub use verbs::{Effect, Target, Verb, VerbError};
