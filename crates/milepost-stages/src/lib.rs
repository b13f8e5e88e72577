//! The stages that come with Milepost: shell commands, HTTP requests, and one that does nothing.
//!
//! A kind gets one call per attempt and says how it ended. It never retries, keeps nothing about tasks, and leaves
//! nothing running behind; what follows from an outcome is the engine's business.

mod builtin;
mod http;
mod noop;
mod parameters;
mod run;

pub use builtin::builtin;
pub use http::HttpKind;
pub use noop::NoopKind;
pub use run::RunKind;
