//! The stages that come with Milepost: shell commands, HTTP requests, files, tables of databases, and
//! one that does nothing.
//!
//! A kind gets one call per attempt and says how it ended. It never retries, keeps nothing about tasks, and leaves
//! nothing running behind; what follows from an outcome is the engine's business.

mod builtin;
mod files;
mod http;
mod noop;
mod parameters;
mod run;
mod tables;

pub use builtin::{builtin, with_databases, with_files};
pub use files::{ChecksumKind, CopyKind, DiskAccess, FileSettings, NodeFiles, ThumbnailKind};
pub use http::HttpKind;
pub use noop::NoopKind;
pub use run::RunKind;
pub use tables::{CopyTableKind, Databases};
