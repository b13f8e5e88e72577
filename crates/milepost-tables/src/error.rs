//! What can go wrong with a table, by what whoever copies does next.

use crate::database::Rejected;

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The database is away, overloaded or ended the work by itself: the same may succeed later.
    #[error("{database} could not {doing}: {reason}")]
    Away { database: String, doing: &'static str, reason: String },
    /// What was asked for, or what is there, makes it impossible: the same fails again.
    #[error("{0}")]
    Refused(String),
    /// A row cannot be copied, and no row may be left out.
    #[error("{0}")]
    Row(Box<Rejected>),
    /// Somebody else has begun this very copy since: nothing more may be written.
    #[error("another node has begun the copy `{copy}` anew; this one stops")]
    Fenced { copy: String },
    /// It was told to end.
    #[error("the copy was told to end")]
    Cancelled,
}
