//! `uses: copy-table`: one table, from one database to another.
//!
//! What a copy is, and all that it guarantees, is in `milepost-tables`; here is what a plan says about one. Which databases
//! a plan may reach is a setting of the node, never of the plan.

mod databases;
mod kind;
mod request;

pub use databases::Databases;
pub use kind::CopyTableKind;
