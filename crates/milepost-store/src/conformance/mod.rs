//! The contract of a store, as cases that every backend runs: `conformance_tests!(harness)` makes a test of each.
//!
//! A case is named after the rule it proves. The list in `cases` is the only one, so no backend can leave a case out.

mod books;
mod cases;
mod changes;
mod claim;
mod commit;
mod damage;
mod given;
mod harness;
mod long_logs;
mod messages;
mod moved;
mod nodes;
mod outcomes;
mod plan_life;
mod random;
mod read;
mod recovery;
mod requests;
mod submit;
mod tenants;
mod tokens;

pub use cases::{CASES, run, run_all};
pub use harness::{Damage, Harness};
