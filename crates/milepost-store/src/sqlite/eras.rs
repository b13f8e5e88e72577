//! `recovery: manual`: the era that an owner begins with its first claim, and what a person sets going in it.

use milepost_core::plan::Recovery;
use milepost_core::task::PlanStatus;
use rusqlite::params;

use crate::going;

use super::writer::Writer;

impl Writer {
    /// With its first claim an owner is a node: nothing of a manual plan goes on that was set going under another.
    pub(super) fn settle_era(&mut self, default: Recovery) -> rusqlite::Result<()> {
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
        self.connection.prepare_cached("UPDATE task_runtimes SET go = go - 1 WHERE go > 0")?.execute([])?;
        self.connection
            .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'settled'")?
            .execute([self.board.epoch as i64])?;
        self.board.settled = true;
        Ok(())
    }

    /// A person wants the plan to run; answers whether that is news.
    pub(super) fn set_going(&mut self, no: i64) -> rusqlite::Result<bool> {
        let was_held = self.waits_for_person(no);
        let go = going::go(self.board.settled);
        let open = self.board.plans.get_mut(&no).expect("a plan is opened before it is written");
        if open.go != go {
            open.go = go;
            self.connection.prepare_cached("UPDATE plans SET go = ?2 WHERE no = ?1")?.execute(params![no, go])?;
        }
        Ok(was_held)
    }

    fn waits_for_person(&self, no: i64) -> bool {
        let runs = self.board.plans.get(&no).is_some_and(|open| open.status == PlanStatus::Running);
        runs && self.board.going(no).is_held(going::HELD, self.board.settled)
    }

    /// What a task was set going for by itself.
    pub(super) fn own_go(&self, no: i64) -> rusqlite::Result<u8> {
        self.connection.prepare_cached("SELECT go FROM task_runtimes WHERE no = ?1")?.query_row([no], |row| row.get(0))
    }

    /// PENDING tasks of a plan that waits for a person which were set going by themselves, and whose tenants are free.
    pub(super) fn let_go(&self, plan: i64, most: usize) -> rusqlite::Result<Vec<i64>> {
        let sql = "SELECT r.no FROM task_runtimes r JOIN task_configs c ON c.no = r.no \
                   WHERE r.plan = ?1 AND r.queue = 0 AND r.go > 0 \
                   AND NOT EXISTS (SELECT 1 FROM locks l WHERE l.tenant = c.tenant AND l.task <> r.no) \
                   ORDER BY r.rank, r.no LIMIT ?2";
        self.connection.prepare_cached(sql)?.query_map(params![plan, most as i64], |row| row.get(0))?.collect()
    }
}
