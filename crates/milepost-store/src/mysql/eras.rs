//! `recovery: manual`: which era a node is in, and what a person has set going in it.

use milepost_core::plan::Recovery;
use milepost_core::task::By;
use milepost_core::time::Timestamp;

use crate::going::{self, Going};

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::states::PlanState;

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

/// What the word of a person is worth who asks this node; or, of a visitor, anybody.
fn go_now(own: Option<u64>) -> String {
    match own {
        Some(own) => format!("IF(EXISTS (SELECT 1 FROM milepost_settled WHERE session = {own}), 1, 2)"),
        None => format!("IF({}, 1, 2)", has_begun!()),
    }
}

impl PlanState {
    pub(super) fn going(&self) -> Going {
        Going { says: self.recovery, plan: if self.ended_at.is_some() { going::HELD } else { self.go } }
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
                // What was set going while it was not known holds for this era, and no longer.
                "UPDATE sync_tasks SET go = 1 WHERE go > 1 AND ended_at IS NULL; \
                 UPDATE milepost_going SET go = 1 WHERE go > 1"
                    .to_owned()
            } else if begun {
                return Ok(false);
            } else {
                let by_default = if default == Recovery::Auto { "'auto'" } else { "'manual'" };
                format!(
                    "UPDATE sync_tasks SET go = IF(COALESCE(recovery, {by_default}) = 'auto', 1, GREATEST(go, 1) - 1) \
                     WHERE ended_at IS NULL AND COALESCE(recovery, 'manual') = 'manual'; \
                     UPDATE milepost_going SET go = go - 1; DELETE FROM milepost_going WHERE go = 0"
                )
            };
            let forget = "DELETE FROM milepost_settled WHERE session NOT IN (SELECT session FROM milepost_nodes)";
            self.ask(&format!("{change}; {forget}; INSERT INTO milepost_settled VALUES ({own})")).await?;
            for plan in self.desk.plans.values_mut() {
                let new = if goes_on {
                    plan.go.min(going::GOING)
                } else {
                    going::in_new_era(plan.recovery, default, plan.go)
                };
                (plan.go, plan.begun) = (new, true);
            }
        }
        // It is remembered only when it is found in the store: this transaction may yet come to nothing.
        Ok(true)
    }

    /// A person wants the plan to run; answers whether that is news.
    pub(super) async fn set_going(&mut self, no: i64) -> Sql<bool> {
        let go = self.go_now().await?;
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
        plan.version += 1;
        if let Some(by) = by {
            plan.changed_by = Some(serde_json::to_string(by).expect("two strings are JSON"));
        }
        self.desk.log_plan(no, by, at);
    }

    pub(super) async fn go_now(&mut self) -> Sql<u8> {
        if self.desk.own.is_some_and(|own| self.shared.is_settled(own)) {
            return Ok(going::GOING);
        }
        let sql = format!("SELECT {}", go_now(self.desk.own));
        let row = self.ask_one(&sql).await?.into_iter().next();
        row.map_or(Ok(going::GOING_NEXT), |row| Columns::from(row).next())
    }

    /// A person set this task going by itself.
    pub(super) fn let_go(&mut self, task: i64) {
        let go = go_now(self.desk.own);
        self.desk
            .writes
            .others
            .push(format!("INSERT INTO milepost_going VALUES ({task}, {go}) ON DUPLICATE KEY UPDATE go = VALUES(go)"));
    }
}
