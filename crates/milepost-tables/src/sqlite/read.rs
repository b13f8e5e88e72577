//! A table's rows, in one read transaction on a thread of its own: what is written meanwhile is not seen.
//!
//! One statement gives them all, so that a page needs no new search; see `query`.

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, InterruptHandle, Row};
use tokio::sync::{mpsc, oneshot};

use super::catalogue;
use super::connect::{Failure, Place, refused};
use super::last_key::LastKey;
use super::query::Query;
use super::types::affinity;
use super::value::Want;
use crate::batch::{Batch, Cell, Spoilt};
use crate::database::{Rows, Scan};
use crate::error::TableError;
use crate::shown::shown;

const DOING: &str = "read rows";

/// Batches that are ready before they are asked for; whoever copies keeps some more.
const AHEAD: usize = 1;

enum Message {
    Batch(Batch),
    End,
}

struct Scanned {
    messages: mpsc::Receiver<Result<Message, TableError>>,
    interrupt: InterruptHandle,
    database: String,
    ended: bool,
}

/// The snapshot is taken before this returns.
pub(super) async fn read(place: Place, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
    let database = place.name();
    let (sender, messages) = mpsc::channel(AHEAD);
    let (ready, begun) = oneshot::channel();
    let thread = move || {
        let said = place.said(DOING);
        let connection = match snapshot(&place) {
            Ok(connection) => connection,
            Err(failure) => {
                let _ = ready.send(Err(said(failure)));
                return;
            }
        };
        if ready.send(Ok(connection.get_interrupt_handle())).is_err() {
            return;
        }
        let end = scan_all(&connection, &scan, &sender).map(|()| Message::End).map_err(said);
        // Nobody listens any more if the scan was given up, and then nobody wants to know how it ended.
        let _ = sender.blocking_send(end);
    };
    let away = |reason: String| TableError::Away { database: database.clone(), doing: DOING, reason };
    std::thread::Builder::new()
        .name("milepost-sqlite".into())
        .spawn(thread)
        .map_err(|error| away(error.to_string()))?;
    let interrupt = begun.await.map_err(|_| away("the thread that reads ended".into()))??;
    Ok(Box::new(Scanned { messages, interrupt, database, ended: false }))
}

#[async_trait]
impl Rows for Scanned {
    async fn next(&mut self) -> Result<Option<Batch>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let message = self.messages.recv().await;
        self.ended = !matches!(message, Some(Ok(Message::Batch(_))));
        match message {
            Some(Ok(Message::Batch(batch))) => Ok(Some(batch)),
            Some(Ok(Message::End)) => Ok(None),
            Some(Err(error)) => Err(error),
            // Silence is no end: rows may be missing.
            None => Err(TableError::Away {
                database: self.database.clone(),
                doing: DOING,
                reason: "the thread that reads ended too early".into(),
            }),
        }
    }
}

impl Drop for Scanned {
    fn drop(&mut self) {
        self.interrupt.interrupt();
    }
}

fn snapshot(place: &Place) -> Result<Connection, Failure> {
    let connection = place.reader()?;
    // A transaction begins with the first page that is read.
    connection.execute_batch("BEGIN; SELECT count(*) FROM (SELECT 1 FROM sqlite_schema LIMIT 1)")?;
    Ok(connection)
}

/// Until the end, or until nobody takes the batches any more.
fn scan_all(
    connection: &Connection,
    scan: &Scan,
    sender: &mpsc::Sender<Result<Message, TableError>>,
) -> Result<(), Failure> {
    let wants = wants(connection, scan)?;
    let query = Query::of(connection, scan, &wants)?;
    let mut statement = connection.prepare(&query.sql)?;
    for (place, bound) in query.bounds.iter().enumerate() {
        statement.raw_bind_parameter(place + 1, bound)?;
    }
    let mut rows = statement.raw_query();
    let (mut batch, mut last) = (Batch::new(wants.len()), LastKey::default());
    while let Some(row) = rows.next()? {
        take(&mut batch, &wants, row);
        last.is_of(row, &scan.key);
        let full = batch.rows() + batch.spoilt.len() >= scan.batch_rows || batch.size() >= scan.batch_bytes;
        if !full {
            continue;
        }
        batch.last = last.get();
        let batch = std::mem::replace(&mut batch, Batch::new(wants.len()));
        if sender.blocking_send(Ok(Message::Batch(batch))).is_err() {
            return Ok(());
        }
    }
    if !batch.is_empty() {
        batch.last = last.get();
        // The end that follows is as lost on a listener that went as this is.
        let _ = sender.blocking_send(Ok(Message::Batch(batch)));
    }
    Ok(())
}

fn take(batch: &mut Batch, wants: &[Want], row: &Row<'_>) {
    for (place, want) in wants.iter().enumerate() {
        if let Err(reason) = want.take(batch, row.get_ref_unwrap(place)) {
            batch.drop_unfinished_row();
            batch.spoilt.push(spoilt(wants, row, reason));
            return;
        }
    }
}

/// With all of its values, as they are.
fn spoilt(wants: &[Want], row: &Row<'_>, reason: String) -> Spoilt {
    let mut raw = Batch::new(wants.len());
    for place in 0..wants.len() {
        match row.get_ref_unwrap(place) {
            ValueRef::Null => raw.push(Cell::Null),
            ValueRef::Integer(value) => raw.push(Cell::Int(value)),
            ValueRef::Real(value) => raw.push(Cell::Float(value)),
            ValueRef::Text(text) => raw.push_text(&String::from_utf8_lossy(text)),
            ValueRef::Blob(bytes) => raw.push_bytes(bytes),
        }
    }
    let names = wants.iter().map(|want| want.name.clone());
    Spoilt { row: names.zip(raw.row(0).iter().map(|cell| shown(&raw, *cell))).collect(), reason }
}

fn wants(connection: &Connection, scan: &Scan) -> Result<Vec<Want>, Failure> {
    let missing = || refused(format!("there is no table `{}`", scan.table));
    let table = catalogue::table(connection, &scan.table)?.ok_or_else(missing)?;
    let want = |(place, (name, kind)): (usize, &(String, crate::table::Kind))| {
        let column = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let column = column.ok_or_else(|| refused(format!("table `{}` has no column `{name}`", scan.table)))?;
        Ok(Want {
            name: name.clone(),
            converts: column.kind != *kind,
            affinity: affinity(&column.native),
            kind: kind.clone(),
            key: scan.key.contains(&place),
            as_is: scan.as_is.contains(&place),
        })
    };
    scan.columns.iter().enumerate().map(want).collect()
}
