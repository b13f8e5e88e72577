//! The states of plans, tasks and stages, as the outside spells them.

use serde::{Deserialize, Serialize};

macro_rules! status {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:tt),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum $name { $(#[serde(rename = $text)] $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The number a store keeps; the order of the variants is part of the stored format.
            pub fn code(self) -> i64 {
                self as i64
            }

            pub fn from_code(code: i64) -> Option<Self> {
                usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

status!(
    PlanStatus {
        Created = "CREATED",
        Ready = "READY",
        Running = "RUNNING",
        Paused = "PAUSED",
        Completed = "COMPLETED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
    }
);

status!(
    TaskStatus {
        Pending = "PENDING",
        Running = "RUNNING",
        Paused = "PAUSED",
        Completed = "COMPLETED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
        RollingBack = "ROLLING_BACK",
        RolledBack = "ROLLED_BACK",
        RollbackFailed = "ROLLBACK_FAILED",
    }
);

status!(
    StageStatus {
        Pending = "PENDING",
        Running = "RUNNING",
        RetryWait = "RETRY_WAIT",
        Completed = "COMPLETED",
        Skipped = "SKIPPED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
        RolledBack = "ROLLED_BACK",
    }
);

impl TaskStatus {
    /// Nothing happens to it any more unless a person asks.
    pub fn is_ended(self) -> bool {
        match self {
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => true,
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused | TaskStatus::RollingBack => false,
        }
    }

    /// Somebody works on it, or did until their node went away; it has a slot of its plan.
    pub fn is_active(self) -> bool {
        matches!(self, TaskStatus::Running | TaskStatus::RollingBack)
    }

    /// Its tenant is closed to others.
    pub fn holds_tenant(self) -> bool {
        self.is_active() || self == TaskStatus::Paused
    }
}

impl PlanStatus {
    pub fn is_ended(self) -> bool {
        matches!(self, PlanStatus::Completed | PlanStatus::Failed | PlanStatus::Cancelled)
    }
}

impl StageStatus {
    /// Stages that need it may start.
    pub fn is_done(self) -> bool {
        matches!(self, StageStatus::Completed | StageStatus::Skipped)
    }
}
