//! A client of a running server: every route of the API as a method, live progress as a stream.

mod connection;
mod error;
mod machinery;
mod messages;
mod plans;
mod tasks;
mod verbs;
mod watch;
mod workflows;

pub use connection::{Client, Paging};
pub use error::ClientError;
pub use plans::{PlanFormat, PlanUpload, TaskFilter};
pub use tasks::{EventFilter, LogFilter};
pub use verbs::Verb;
pub use watch::WatchEvent;
