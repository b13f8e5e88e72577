//! What only the node that holds a task can do for others, and what it answers.

use mysql_async::Row;

use crate::error::StoreError;
use crate::model::TaskRef;
use crate::nodes::{Answered, Letter, Posted};

use super::codec::{Columns, LEASES_PER_SESSION, Sql, unavailable};
use super::read::first;
use super::sql::{NOW, text};
use super::store::Shared;

impl Shared {
    /// For the session that holds the task at this moment, if it is there. Posted again, it is still one letter.
    pub(super) async fn post(&self, letter: &Letter) -> Result<Option<i64>, StoreError> {
        let sql = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; INSERT INTO milepost_letters (id, session, task, body, at) SELECT {id}, n.session, c.unit_name, {}, {NOW} \
             FROM task_unit_configs c JOIN task_unit_runtimes r ON r.id = c.id JOIN milepost_nodes n \
             ON n.session = r.lease DIV {LEASES_PER_SESSION} AND n.ended = 0 AND n.expires_at >= {NOW} \
             WHERE c.unit_name = {} AND r.lease <> 0 \
             ON DUPLICATE KEY UPDATE milepost_letters.id = milepost_letters.id; SELECT no FROM milepost_letters WHERE id = {id}",
            text(&letter.body),
            text(letter.task.as_str()),
            id = text(&letter.id),
        );
        let Some(row) = first(self.server.ask("post a letter", &sql).await?) else { return Ok(None) };
        let no = Columns::from(row).next::<i64>().map_err(unavailable("post a letter"))?;
        self.watch.await_answer(no);
        Ok(Some(no))
    }

    pub(super) async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        let Some(session) = self.session() else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT no, task, id, body FROM milepost_letters WHERE session = {session} AND answer IS NULL ORDER BY no"
        );
        let rows = self.server.ask("read letters", &sql).await?.concat();
        let letter = |row: Row| {
            let mut columns = Columns::from(row);
            let key = TaskRef { no: columns.next()?, id: columns.task_id()? };
            let (id, body) = (columns.next()?, columns.next()?);
            Ok(Posted { no: key.no, letter: Letter { id, task: key.id, body } })
        };
        rows.into_iter().map(letter).collect::<Sql<_>>().map_err(unavailable("read letters"))
    }

    pub(super) async fn answer(&self, letter: i64, answer: &str) -> Result<(), StoreError> {
        let sql =
            format!("UPDATE milepost_letters SET answer = {} WHERE no = {letter} AND answer IS NULL", text(answer));
        self.server.ask("answer a letter", &sql).await.map(drop)
    }

    pub(super) async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        let sql = format!(
            "SELECT l.answer, n.session IS NOT NULL FROM milepost_letters l LEFT JOIN milepost_nodes n \
             ON n.session = l.session AND n.ended = 0 WHERE l.no = {letter}"
        );
        let row = first(self.server.ask("read an answer", &sql).await?);
        let answered = |row| {
            let mut columns = Columns::from(row);
            let (answer, there) = (columns.maybe()?, columns.next()?);
            Ok(match answer {
                Some(answer) => Answered::With(answer),
                None if there => Answered::NotYet,
                None => Answered::Never,
            })
        };
        let answered = row.map_or(Ok(Answered::Never), answered).map_err(unavailable("read an answer"))?;
        if answered != Answered::NotYet {
            self.watch.has_answer(letter);
        }
        Ok(answered)
    }
}
