//! Files that tasks work on: brought to this node and gone with the task, and the stages that check, copy and shrink them.
//!
//! Places are `file:///…`, `s3://bucket/key` and, to read from, `http(s)://…`. Which of them this node may touch is a
//! setting of the node, never of a plan.

mod checksum;
mod copy;
mod disk;
mod folder;
mod node;
mod objects;
mod place;
mod put;
mod save;
mod staging;
mod thumbnail;

pub use checksum::ChecksumKind;
pub use copy::CopyKind;
pub use node::{DiskAccess, FileSettings, NodeFiles};
pub use thumbnail::ThumbnailKind;
