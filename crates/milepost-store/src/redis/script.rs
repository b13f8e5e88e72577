//! The scripts, each with the parts that it begins with, and how one is called.

use std::sync::LazyLock;

use milepost_core::plan::{PlanCommand, TaskCounts, next_plan_status};
use milepost_core::task::{PlanStatus, TaskStatus};
use redis::Cmd;

/// A script, and the name that Redis knows it by.
pub(super) struct Script {
    inner: redis::Script,
    text: &'static str,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { inner: redis::Script::new(text), text }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }
}

macro_rules! script {
    ($($part:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $part, ".lua"))),+)))
    };
}

pub(super) static COMMIT: LazyLock<Script> = script!("common", "books", "tasks", "sessions", "commit");
pub(super) static PICK: LazyLock<Script> = script!("common", "tasks", "sessions", "describe", "pick");
pub(super) static TAKE: LazyLock<Script> = script!("common", "books", "tasks", "describe", "take");
pub(super) static DOUBT: LazyLock<Script> = script!("common", "doubt");
pub(super) static ASIDE: LazyLock<Script> = script!("common", "tasks", "aside");
pub(super) static CHANGE_PLAN: LazyLock<Script> = script!("common", "tasks", "change_plan");
pub(super) static CHANGE_BOOKS: LazyLock<Script> = script!("common", "books", "change_books");
pub(super) static NOTE: LazyLock<Script> = script!("common", "note");
pub(super) static SUBMIT: LazyLock<Script> = script!("common", "books", "tasks", "intake", "submit");
pub(super) static UPDATE: LazyLock<Script> = script!("common", "books", "tasks", "sessions", "intake", "update");
pub(super) static IMPORT: LazyLock<Script> = script!("common", "tasks", "sessions", "intake", "import");
pub(super) static READ: LazyLock<Script> = script!("common", "tasks", "describe", "read");
pub(super) static JOIN: LazyLock<Script> = script!("common", "tasks", "sessions", "join");
pub(super) static BEAT: LazyLock<Script> = script!("common", "tasks", "sessions", "intake", "beat");
pub(super) static ERA: LazyLock<Script> = script!("common", "tasks", "sessions", "era");
pub(super) static LEAVE: LazyLock<Script> = script!("common", "tasks", "sessions", "leave");
pub(super) static LETTERS: LazyLock<Script> = script!("common", "tasks", "sessions", "letters");
pub(super) static LOOK: LazyLock<Script> = script!("common", "tasks", "sessions", "look");

/// What every call begins with.
#[derive(Debug, Clone)]
pub(super) struct Prelude {
    pub(super) prefix: String,
    pub(super) lock_ttl: u64,
}

impl Prelude {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}mp:{name}", self.prefix)
    }

    /// On behalf of a session; of nobody when it is 0.
    pub(super) fn call(&self, script: &Script, session: u64) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(script.inner.get_hash()).arg(1).arg(self.key("counters")).arg(&self.prefix);
        if session == 0 {
            call.arg("");
        } else {
            call.arg(session);
        }
        call.arg(&*SETTLED).arg(self.lock_ttl);
        call
    }
}

/// What a command makes of each status of a plan: a digit each, and `x` where it is refused. The core decides; the
/// scripts look it up.
pub(super) fn becomes(command: PlanCommand) -> String {
    table(command, &TaskCounts::default())
}

/// What settling makes of each status when all tasks are completed, and then when all have ended, but not all so.
static SETTLED: LazyLock<String> = LazyLock::new(|| {
    let mut counts = TaskCounts::default();
    counts.add(TaskStatus::Completed, 1);
    let all_completed = table(PlanCommand::Settle, &counts);
    counts.add(TaskStatus::Failed, 1);
    all_completed + &table(PlanCommand::Settle, &counts)
});

fn table(command: PlanCommand, counts: &TaskCounts) -> String {
    let next = |status: &PlanStatus| match next_plan_status("", *status, counts, command) {
        Ok(status) => status.code().to_string(),
        Err(_) => "x".to_owned(),
    };
    PlanStatus::ALL.iter().map(next).collect()
}
