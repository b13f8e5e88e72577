//! Tasks rebuilt from their logs: from the last snapshot on if there is one, and else from the start.

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::task::{Task, TaskSpec};
use tokio_postgres::types::Type;

use crate::codec::{Folded, LogHead, LogRow, check_body, damaged, fold_log, fold_rows};
use crate::error::StoreError;
use crate::model::TaskRef;
use crate::snapshot::SHORTEST;

use super::codec::crc;
use super::connect::Server;

/// A task to be rebuilt.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: TaskRef,
    pub(super) spec: Arc<TaskSpec>,
    pub(super) head: LogHead,
    /// The whole of a log of one event, if it was read with its task.
    pub(super) creation: Option<LogRow>,
}

/// Each as it was at its head: rows of the log never change, so that it does not matter what has been added since.
pub(super) async fn fold(server: &Server, mut wanted: Vec<Wanted>) -> Result<Vec<Folded>, StoreError> {
    let mut begun = begin_with_snapshots(server, &wanted).await?;
    let mut logs = read_logs(server, &mut wanted, &begun).await?;
    let mut folded = Vec::with_capacity(wanted.len());
    for mut one in wanted {
        let log = logs.remove(&one.key.no).unwrap_or_default();
        let Some((task, _)) = begun.remove(&one.key.no) else {
            folded.push(fold_log(&one.key, one.spec, log, &one.head));
            continue;
        };
        let mut task = fold_rows(&one.key, task, log, &one.head);
        if task.is_damaged() {
            tracing::warn!(task = %one.key.id, "a snapshot does not lead to the task; the log is read from its start");
            let mut whole = read_logs(server, std::slice::from_mut(&mut one), &HashMap::new()).await?;
            task = fold_log(&one.key, one.spec, whole.remove(&one.key.no).unwrap_or_default(), &one.head);
        }
        folded.push(task);
    }
    Ok(folded)
}

/// A task as a snapshot shows it, and the row of the log that it shows it after.
type Begun = HashMap<i64, (Task, i64)>;

async fn begin_with_snapshots(server: &Server, wanted: &[Wanted]) -> Result<Begun, StoreError> {
    let long: HashMap<i64, &Wanted> =
        wanted.iter().filter(|one| one.head.version >= SHORTEST).map(|one| (one.key.no, one)).collect();
    if long.is_empty() {
        return Ok(Begun::new());
    }
    let numbers: Vec<i64> = long.keys().copied().collect();
    let sql = "SELECT task, pos, crc, body FROM @.snapshots WHERE task = ANY ($1)";
    let rows = server.read("read snapshots", sql, &[(&numbers, Type::INT8_ARRAY)]).await?;
    let mut begun = Begun::new();
    for row in rows {
        let (no, pos, text): (i64, i64, &str) = (row.get(0), row.get(1), row.get(3));
        let one = long[&no];
        let what = || format!("the snapshot of task {}", one.key.id);
        let read = check_body(text, crc(&row, "crc"), what)
            .and_then(|()| Task::from_image(one.spec.clone(), text).map_err(|error| damaged(what(), error)));
        match read {
            // One that was made after the head was read says nothing of it.
            Ok(task) if task.version() <= one.head.version => drop(begun.insert(no, (task, pos))),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(task = %one.key.id, %error, "a snapshot is of no use; the log is read from its start");
            }
        }
    }
    Ok(begun)
}

type Logs = HashMap<i64, Vec<LogRow>>;

async fn read_logs(server: &Server, wanted: &mut [Wanted], begun: &Begun) -> Result<Logs, StoreError> {
    let (mut numbers, mut lasts, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    let mut logs = Logs::new();
    for one in wanted {
        let (version, position) = begun.get(&one.key.no).map_or((0, 0), |(task, position)| (task.version(), *position));
        if let Some(creation) = one.creation.take() {
            logs.insert(one.key.no, vec![creation]);
        } else if one.head.version > version {
            numbers.push(one.key.no);
            lasts.push(one.head.last_event);
            firsts.push(position);
        }
    }
    if numbers.is_empty() {
        return Ok(logs);
    }
    let sql = "SELECT e.task, e.pos, e.seq, e.crc, e.body FROM unnest($1, $2, $3) w (no, last, first) CROSS JOIN LATERAL (\
               SELECT * FROM @.events e WHERE e.task = w.no AND e.pos > w.first AND e.pos <= w.last ORDER BY e.pos) e";
    let array = Type::INT8_ARRAY;
    let parameters: &super::connect::Parameters<'_> =
        &[(&numbers, array.clone()), (&lasts, array.clone()), (&firsts, array)];
    for row in server.read("read events", sql, parameters).await? {
        let (no, position, sequence, text): (i64, i64, i64, &str) = (row.get(0), row.get(1), row.get(2), row.get(4));
        let what = || format!("event row {position}");
        let read = LogRow::read(sequence.unsigned_abs(), text, crc(&row, "crc"), what);
        logs.entry(no).or_default().push(read);
    }
    Ok(logs)
}
