//! `recovery: manual`: the era that an owner begins with its first claim, and what a person sets going in it.

use milepost_core::plan::Recovery;
use milepost_core::task::PlanStatus;
use rusqlite::params;

use crate::going;

use super::board::LetGo;
use super::writer::Writer;

/// Apart from what every stage changes, so that no stage pays for it.
const SET_TASK_GO: &str = "UPDATE task_runtimes SET go = ?2 WHERE no = ?1";

impl Writer {
    /// With its first claim an owner is a node: nothing of a manual plan goes on that was set going under another. One
    /// that runs one plan only speaks for no other.
    pub(super) fn settle_era(&mut self, default: Recovery, only: Option<i64>) -> rusqlite::Result<()> {
        if let Some(plan) = only {
            return self.use_up(plan);
        }
        if self.board.settled {
            return Ok(());
        }
        let mut set = self.connection.prepare_cached("UPDATE plans SET go = ?2 WHERE no = ?1")?;
        for (no, open) in self.board.plans.iter_mut().filter(|(_, open)| !open.ended) {
            let left = going::in_new_era(open.shared.settings.recovery, default, open.go);
            if left != open.go {
                open.go = left;
                set.execute(params![no, left])?;
            }
        }
        if !self.board.let_go.is_empty() {
            self.connection.prepare_cached("UPDATE task_runtimes SET go = go - 1 WHERE go > 0")?.execute([])?;
            self.board.let_go.retain(|_, own| {
                own.go = own.go.saturating_sub(1);
                own.go > going::HELD
            });
        }
        self.connection
            .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'settled'")?
            .execute([self.board.epoch as i64])?;
        self.board.settled = true;
        Ok(())
    }

    /// What was said for this plan was for the owner that runs it now.
    fn use_up(&mut self, plan: i64) -> rusqlite::Result<()> {
        let go = self.board.plans.get(&plan).map_or(going::HELD, |open| open.go);
        self.set_go(plan, going::once_seen(go))?;
        for (no, own) in self.board.let_go.iter_mut().filter(|(_, own)| own.plan == plan && own.go > going::GOING) {
            own.go = going::once_seen(own.go);
            self.connection.prepare_cached(SET_TASK_GO)?.execute(params![no, own.go])?;
        }
        Ok(())
    }

    fn set_go(&mut self, no: i64, go: u8) -> rusqlite::Result<()> {
        let Some(open) = self.board.plans.get_mut(&no).filter(|open| open.go != go) else { return Ok(()) };
        open.go = go;
        self.connection.prepare_cached("UPDATE plans SET go = ?2 WHERE no = ?1")?.execute(params![no, go])?;
        Ok(())
    }

    /// A person wants the plan to run; answers whether that is news.
    pub(super) fn set_going(&mut self, no: i64) -> rusqlite::Result<bool> {
        let was_held = self.waits_for_person(no);
        self.set_go(no, self.board.word(no))?;
        Ok(was_held)
    }

    /// A person wants this task to run. `asked`: what its plan becomes by the same word.
    pub(super) fn let_go(&mut self, no: i64, plan: i64, asked: Option<PlanStatus>) -> rusqlite::Result<()> {
        let word = self.board.word(plan);
        if asked == Some(PlanStatus::Running) && self.board.plans[&plan].status != PlanStatus::Running {
            return self.set_go(plan, word);
        }
        if !self.board.going(plan).lacks(word) {
            return Ok(());
        }
        self.board.let_go.insert(no, LetGo { plan, go: word });
        self.connection.prepare_cached(SET_TASK_GO)?.execute(params![no, word])?;
        Ok(())
    }

    fn waits_for_person(&self, no: i64) -> bool {
        let runs = self.board.plans.get(&no).is_some_and(|open| open.status == PlanStatus::Running);
        runs && self.board.going(no).is_held(going::HELD, self.board.settled)
    }

    /// PENDING tasks of a plan that waits for a person which were set going by themselves, and whose tenants are free.
    pub(super) fn ready_alone(&self, plan: i64, most: usize) -> rusqlite::Result<Vec<i64>> {
        if !self.board.let_go.values().any(|own| own.plan == plan) {
            return Ok(Vec::new());
        }
        let sql = "SELECT r.no FROM task_runtimes r INDEXED BY task_runtimes_go JOIN task_configs c ON c.no = r.no \
                   WHERE r.plan = ?1 AND r.queue = 0 AND r.go > 0 \
                   AND NOT EXISTS (SELECT 1 FROM locks l WHERE l.tenant = c.tenant AND l.task <> r.no) \
                   ORDER BY r.rank, r.no LIMIT ?2";
        self.connection.prepare_cached(sql)?.query_map(params![plan, most as i64], |row| row.get(0))?.collect()
    }
}
