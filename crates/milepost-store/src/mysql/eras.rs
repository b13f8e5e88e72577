//! `recovery: manual`: which era a node is in, and what a person has set going in it.

use milepost_core::id::PlanId;
use milepost_core::plan::Recovery;
use milepost_core::task::{By, PlanStatus};
use milepost_core::time::Timestamp;

use crate::going::{self, Going};

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::sql::text;
use super::states::{PlanState, TaskState};

/// A node is there that belongs to an era.
macro_rules! has_begun {
    () => {
        concat!(
            "EXISTS (SELECT 1 FROM milepost_settled e JOIN milepost_nodes m ON m.session = e.session \
             WHERE m.ended = 0 AND m.expires_at >= ",
            crate::mysql::sql::now!(),
            ")"
        )
    };
}
pub(super) use has_begun;

/// As the column has it; null when the plan does not say.
pub(super) fn recovery_word(recovery: Option<Recovery>) -> &'static str {
    match recovery {
        Some(Recovery::Auto) => "'auto'",
        Some(Recovery::Manual) => "'manual'",
        None => "NULL",
    }
}

/// Whether a node belongs to an era.
pub(super) fn is_settled(session: u64) -> String {
    format!("EXISTS (SELECT 1 FROM milepost_settled WHERE session = {session})")
}

/// Whether anything was said that may be for this era or the next, or anybody wants to know which one it is in.
pub(super) const SAID: &str = "(EXISTS (SELECT 1 FROM sync_tasks WHERE go > 1) \
    OR EXISTS (SELECT 1 FROM milepost_going WHERE go > 1) OR EXISTS (SELECT 1 FROM milepost_asking))";

const FORGET_SETTLED: &str = "DELETE FROM milepost_settled WHERE session NOT IN (SELECT session FROM milepost_nodes)";

/// A sign of life of a node: if it belongs to an era, that is there, and all words were for it. One whose session was ended
/// has none to give. Whoever is here and wants to know belongs to it too from now on: one that is busy may ask no more
/// before this node is gone.
pub(super) fn see(session: u64) -> String {
    let there = format!(
        "EXISTS (SELECT 1 FROM milepost_settled e JOIN milepost_nodes m ON m.session = e.session \
         WHERE e.session = {session} AND m.ended = 0)"
    );
    format!(
        "UPDATE sync_tasks SET go = 1 WHERE go > 1 AND {there}; \
         UPDATE milepost_going SET go = 1 WHERE go > 1 AND {there}; \
         INSERT IGNORE INTO milepost_settled SELECT n.session FROM milepost_asking a \
         JOIN milepost_nodes n ON n.session = a.session AND n.ended = 0 \
         JOIN milepost_nodes m ON m.session = {session} AND m.ended = 0 \
         JOIN milepost_settled e ON e.session = m.session; \
         DELETE FROM milepost_asking WHERE {there}; {FORGET_SETTLED}"
    )
}

impl PlanState {
    pub(super) fn going(&self) -> Going {
        Going::of(self.recovery, self.go, self.ended_at.is_some())
    }
}

impl Turn {
    /// A node that claims for the first time finds out which era it is in; false while it cannot tell.
    pub(super) async fn settle_era(&mut self, own: u64, default: Recovery) -> Sql<bool> {
        if self.shared.is_settled(own) {
            return Ok(true);
        }
        self.flush().await?;
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM milepost_settled WHERE session = {own}), \
             EXISTS (SELECT 1 FROM milepost_settled e JOIN milepost_nodes n ON n.session = e.session \
             JOIN milepost_nodes o ON o.session = {own} WHERE n.seen_at > o.started_at), {}",
            has_begun!()
        );
        let Some(row) = self.ask_one(&sql).await?.into_iter().next() else { return Ok(false) };
        let mut columns = Columns::from(row);
        let (known, goes_on, begun) = (columns.flag()?, columns.flag()?, columns.flag()?);
        if known {
            self.shared.settle(own);
        } else {
            let change = if goes_on {
                "UPDATE sync_tasks SET go = 1 WHERE go > 1; UPDATE milepost_going SET go = 1 WHERE go > 1".to_owned()
            } else if begun {
                self.ask(&format!("INSERT IGNORE INTO milepost_asking VALUES ({own})")).await?;
                return Ok(false);
            } else {
                let by_default = if default == Recovery::Auto { "'auto'" } else { "'manual'" };
                format!(
                    "UPDATE sync_tasks SET go = IF(COALESCE(recovery, {by_default}) = 'auto', 1, GREATEST(go, 1) - 1) \
                     WHERE ended_at IS NULL AND COALESCE(recovery, 'manual') = 'manual'; \
                     UPDATE milepost_going SET go = go - 1; DELETE FROM milepost_going WHERE go = 0"
                )
            };
            let known = format!(
                "INSERT INTO milepost_settled VALUES ({own}); DELETE FROM milepost_asking WHERE session = {own}"
            );
            self.ask(&format!("{change}; {FORGET_SETTLED}; {known}")).await?;
            for plan in self.desk.plans.values_mut() {
                let new = if goes_on {
                    going::once_seen(plan.go)
                } else {
                    going::in_new_era(plan.recovery, default, plan.go)
                };
                (plan.go, plan.begun) = (new, true);
            }
            if !goes_on {
                self.wake_let_go().await?;
            }
        }
        // It is remembered only when it is found in the store: this transaction may yet come to nothing.
        Ok(true)
    }

    /// The plan by its number. What was said for it was for the node that runs it now, and no other.
    pub(super) async fn use_up(&mut self, id: &PlanId) -> Sql<Option<i64>> {
        let of_plan = "SELECT r.id FROM task_unit_runtimes r WHERE r.task_id = p.id";
        let said =
            format!("p.go > 1 OR EXISTS (SELECT 1 FROM milepost_going g WHERE g.go > 1 AND g.task IN ({of_plan}))");
        let sql = format!("SELECT p.id, {said} FROM sync_tasks p WHERE p.name = {}", text(id.as_str()));
        let Some(row) = self.ask_one(&sql).await?.into_iter().next() else { return Ok(None) };
        let mut columns = Columns::from(row);
        let (no, said) = (columns.next()?, columns.flag()?);
        if said {
            let sql = format!(
                "UPDATE sync_tasks SET go = 1 WHERE id = {no} AND go > 1; \
                 UPDATE milepost_going g JOIN task_unit_runtimes r ON r.id = g.task SET g.go = 1 \
                 WHERE g.go > 1 AND r.task_id = {no}"
            );
            self.ask(&sql).await?;
        }
        Ok(Some(no))
    }

    /// A person wants the plan to run; answers whether that is news.
    pub(super) async fn set_going(&mut self, no: i64) -> Sql<bool> {
        let says = self.desk.plan(no).recovery;
        let go = self.go_now(says).await?;
        let plan = self.desk.plan(no);
        let was_held = plan.row().waits_for_person;
        if plan.go != go {
            plan.go = go;
            self.desk.writes.others.push(format!("UPDATE sync_tasks SET go = {go} WHERE id = {no}"));
        }
        Ok(was_held)
    }

    /// Says so in the log, when it is news and nothing else does.
    pub(super) fn log_going(&mut self, no: i64, by: Option<&By>, at: Timestamp) {
        let plan = self.desk.plan(no);
        if let Some(by) = by {
            plan.changed_by = Some(serde_json::to_string(by).expect("two strings are JSON"));
        }
        self.count_change(no, by, at);
    }

    /// Its version grows, and it is as it was.
    pub(super) fn count_change(&mut self, no: i64, by: Option<&By>, at: Timestamp) {
        self.desk.plan(no).version += 1;
        self.desk.log_plan(no, by, at);
    }

    /// What a person's word is worth for a plan that says this.
    pub(super) async fn go_now(&mut self, says: Option<Recovery>) -> Sql<u8> {
        let settled = match self.desk.own {
            None => false,
            Some(_) if says == Some(Recovery::Auto) => true,
            Some(own) if self.shared.is_settled(own) => true,
            Some(own) => {
                let row = self.ask_one(&format!("SELECT {}", is_settled(own))).await?.into_iter().next();
                row.map_or(Ok(false), |row| Columns::from(row).flag())?
            }
        };
        Ok(going::go(says, settled))
    }

    /// The same in a statement, for those that ask nothing.
    fn word(&self) -> String {
        match self.desk.own {
            None => going::GOING_NEXT.to_string(),
            Some(own) if self.shared.is_settled(own) => going::GOING.to_string(),
            Some(own) => format!("IF({}, {}, {})", is_settled(own), going::GOING, going::GOING_NEXT),
        }
    }

    /// A person wants this task to run. `asked`: what its plan becomes by the same word.
    pub(super) fn let_go(&mut self, task: &TaskState, asked: Option<PlanStatus>) {
        let word = self.word();
        let plan = self.desk.plan(task.plan);
        let (no, going) = (plan.no, plan.going());
        let auto = plan.recovery == Some(Recovery::Auto);
        if asked == Some(PlanStatus::Running) && plan.status != PlanStatus::Running {
            plan.go = going::GOING;
            let go = if auto { going::GOING.to_string() } else { word };
            self.desk.writes.others.push(format!("UPDATE sync_tasks SET go = {go} WHERE id = {no}"));
        } else if going.lacks(going::GOING_NEXT) {
            self.desk.writes.others.push(format!(
                "INSERT INTO milepost_going SELECT {}, w.word FROM (SELECT {word} AS word) w WHERE w.word > {} \
                 ON DUPLICATE KEY UPDATE go = VALUES(go)",
                task.no, going.plan
            ));
        }
    }
}
