//! When the code asks for something else than the log has: what is compared, and how it is said.

use std::sync::Arc;

use milepost_core::id::StageName;

/// What the log and the code disagree about. The names are stable: they open the reason that the log keeps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Divergence {
    #[error("other-stage: the log has {kind} `{recorded}` {place}, the code asked for `{asked}`")]
    OtherStage { kind: &'static str, recorded: StageName, place: Place, asked: StageName },
    #[error("other-order: the log has {kind} `{stage}` {recorded}, the code asked for it {asked}")]
    OtherOrder { kind: &'static str, stage: StageName, recorded: Place, asked: Place },
    #[error("other-kind: the log has `{stage}` as a {recorded}, the code asked for it as a {asked}")]
    OtherKind { stage: StageName, recorded: &'static str, asked: &'static str },
    #[error(
        "changed-input: the log has {kind} `{stage}` with input {recorded:016x}, the code asked for it with {asked:016x}"
    )]
    ChangedInput { kind: &'static str, stage: StageName, recorded: u64, asked: u64 },
    #[error("missing-stage: the log has {kind} `{recorded}` {place}, the code {instead}")]
    MissingStage { kind: &'static str, recorded: StageName, place: Place, instead: Instead },
}

impl Divergence {
    /// Opens the words above.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Divergence::OtherStage { .. } => "other-stage",
            Divergence::OtherOrder { .. } => "other-order",
            Divergence::OtherKind { .. } => "other-kind",
            Divergence::ChangedInput { .. } => "changed-input",
            Divergence::MissingStage { .. } => "missing-stage",
        }
    }

    /// The stage of the log that it is about.
    pub(crate) fn stage(&self) -> &StageName {
        match self {
            Divergence::OtherStage { recorded, .. } | Divergence::MissingStage { recorded, .. } => recorded,
            Divergence::OtherOrder { stage, .. }
            | Divergence::OtherKind { stage, .. }
            | Divergence::ChangedInput { stage, .. } => stage,
        }
    }
}

/// What the code did in the place of a recorded stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instead {
    Returned,
    /// It waits for something else.
    Waits,
}

impl std::fmt::Display for Instead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Instead::Returned => "returned without it",
            Instead::Waits => "waits for something else",
        })
    }
}

/// Which operation of a branch it is, in words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) scope: Arc<str>,
    pub(crate) place: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const WORDS: [&str; 10] =
            ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
        let index = usize::try_from(self.place).unwrap_or(usize::MAX);
        match WORDS.get(index.wrapping_sub(1)) {
            Some(word) => f.write_str(word)?,
            None => write!(f, "as number {}", self.place)?,
        }
        if !self.scope.is_empty() {
            write!(f, " in branch `{}`", self.scope)?;
        }
        Ok(())
    }
}
