//! The stages that come with Milepost: shell commands, and one that does nothing.
//!
//! Each file owns one idea. Nothing here keeps state about tasks, retries anything, or looks at the clock to decide:
//! a kind gets one call per attempt and says how it ended; what follows is the engine's business.

mod builtin;
mod noop;
mod parameters;
mod run;

pub use builtin::builtin;
pub use noop::NoopKind;
pub use run::RunKind;
