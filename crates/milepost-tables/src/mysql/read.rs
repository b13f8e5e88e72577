//! Reading a table: one snapshot, page after page by its key, each row straight into the cells of a batch.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio::sync::mpsc;

use crate::batch::{Batch, Spoilt};
use crate::database::{Rows, Scan};
use crate::error::TableError;
use crate::table::TableName;

use super::catalogue::{self, Known};
use super::connect::Server;
use super::decode::{self, Reads};
use super::failure::{Failing, failed};
use super::page::Pages;
use super::sql;

pub(super) async fn read(server: &Arc<Server>, scan: Scan) -> Result<MyRows, TableError> {
    let mut conn = server.connect().await?;
    let table = scan.table.to_string();
    for statement in [
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ] {
        server.tell(&mut conn, "begin to read", &table, statement).await?;
    }
    let known = catalogue::table(server, &mut conn, &scan.table).await?;
    let known = known.ok_or_else(|| refused(format!("there is no table {table} in {}", server.name)))?;
    let (pages, after) = plan(server, &scan, &known)?;
    let (sender, receiver) = mpsc::channel(1);
    let reading = Reading {
        server: server.clone(),
        table: scan.table,
        pages,
        batch_rows: scan.batch_rows.max(1),
        batch_bytes: scan.batch_bytes,
        sender,
    };
    Ok(MyRows { receiver, reading: Some(Box::pin(reading.run(conn, after))) })
}

fn plan(server: &Server, scan: &Scan, known: &Known) -> Result<(Pages, Option<Vec<String>>), TableError> {
    let column = |(name, kind): &(String, _)| {
        let position = known
            .position(name)
            .ok_or_else(|| refused(format!("table {} in {} has no column {name}", scan.table, server.name)))?;
        Ok(Reads { name: name.clone(), kind: Clone::clone(kind), native: known.natives[position].clone() })
    };
    let columns: Vec<Reads> = scan.columns.iter().map(column).collect::<Result<_, TableError>>()?;
    let index = index(known, &columns, &scan.key).map(|index| format!(" FORCE INDEX ({})", sql::name(index)));
    let mut pages = Pages {
        columns,
        key: scan.key.clone(),
        from: format!("{}{}", sql::table(&scan.table), index.unwrap_or_default()),
        conditions: scan.filter.iter().map(|filter| format!("({filter})")).collect(),
        limit: scan.batch_rows.max(1),
    };
    let no_key = || refused(format!("the place to go on from is none in the key of {}", scan.table));
    let key = |key: &Option<Vec<_>>| key.as_ref().map(|key| pages.key_from(key).ok_or_else(no_key)).transpose();
    let (after, until) = (key(&scan.after)?, key(&scan.until)?);
    if let Some(until) = until {
        pages.conditions.push(pages.beyond(&until, "<="));
    }
    Ok((pages, after))
}

/// The index that has the key's order: the server might else prefer to sort the whole table for every page.
fn index<'a>(known: &'a Known, columns: &[Reads], key: &[usize]) -> Option<&'a str> {
    let is_key = |positions: &[usize]| {
        positions.len() == key.len()
            && positions.iter().zip(key).all(|(position, key)| known.position(&columns[*key].name) == Some(*position))
    };
    if key.is_empty() {
        return None;
    }
    if is_key(&known.table.primary) {
        return Some("PRIMARY");
    }
    known.table.indexes.iter().find(|index| is_key(&index.columns)).map(|index| index.name.as_str())
}

/// Reads only while somebody waits for rows: the reading is no task of its own, and ends with this.
pub(super) struct MyRows {
    receiver: mpsc::Receiver<Batch>,
    /// None at the end.
    reading: Option<BoxFuture<'static, Result<(), TableError>>>,
}

#[async_trait]
impl Rows for MyRows {
    async fn next(&mut self) -> Result<Option<Batch>, TableError> {
        if let Some(reading) = &mut self.reading {
            tokio::select! {
                biased;
                Some(batch) = self.receiver.recv() => return Ok(Some(batch)),
                ended = reading => {
                    self.reading = None;
                    ended?;
                }
            }
        }
        Ok(self.receiver.recv().await)
    }
}

struct Reading {
    server: Arc<Server>,
    table: TableName,
    pages: Pages,
    batch_rows: usize,
    batch_bytes: usize,
    sender: mpsc::Sender<Batch>,
}

impl Reading {
    async fn run(self, mut conn: Conn, mut after: Option<Vec<String>>) -> Result<(), TableError> {
        loop {
            let statement = self.pages.statement(after.as_deref());
            after = self.page(&mut conn, &statement).await?;
            if after.is_none() {
                drop(conn.disconnect().await);
                return Ok(());
            }
        }
    }

    /// Where the next page begins, if there may be one.
    async fn page(&self, conn: &mut Conn, statement: &str) -> Result<Option<Vec<String>>, TableError> {
        let table = self.table.to_string();
        let failed = failed(Failing { server: &self.server.name, doing: "read", what: &table });
        let cut_short = CutShort { server: self.server.clone(), id: u64::from(conn.id()) };
        // By the binary protocol: FLOAT would lose digits as text.
        let statement = conn.prep(statement).await.map_err(&failed)?;
        let mut result = conn.exec_iter(&statement, ()).await.map_err(&failed)?;
        let (mut rows, mut batch, mut last) = (0, Batch::new(self.pages.columns.len()), None);
        while let Some(row) = result.next().await.map_err(&failed)? {
            rows += 1;
            let row = Row::unwrap(row);
            self.push(&mut batch, &row);
            if rows == self.pages.limit && !self.pages.key.is_empty() {
                last = Some(self.pages.key_of(&row));
            }
            if batch.rows() + batch.spoilt.len() >= self.batch_rows || batch.size() >= self.batch_bytes {
                let full = std::mem::replace(&mut batch, Batch::new(self.pages.columns.len()));
                self.hand_over(full).await;
            }
        }
        cut_short.not_at_all();
        drop(result);
        conn.close(statement).await.map_err(&failed)?;
        if !batch.is_empty() {
            self.hand_over(batch).await;
        }
        Ok(last)
    }

    fn push(&self, batch: &mut Batch, row: &[mysql_async::Value]) {
        batch.last = None;
        for (column, value) in self.pages.columns.iter().zip(row) {
            if let Err(decode::Other) = column.push(batch, value) {
                batch.drop_unfinished_row();
                batch.last = Some(self.pages.values_of(row)).filter(|key| !key.is_empty());
                let columns = self.pages.columns.iter().zip(row);
                let row = columns.map(|(column, value)| (column.name.clone(), decode::shown(&column.native, value)));
                batch.spoilt.push(Spoilt { row: row.collect(), reason: column.reason(value) });
                return;
            }
        }
    }

    async fn hand_over(&self, batch: Batch) {
        // Whoever waits for rows polls this, so there is always somebody to take them.
        let _ = self.sender.send(batch).await;
    }
}

/// A connection that is given up in the middle of its rows would read all the others first, to end in good order; a table
/// may have many. So the server is told to end it.
struct CutShort {
    server: Arc<Server>,
    id: u64,
}

impl CutShort {
    fn not_at_all(mut self) {
        self.id = 0;
    }
}

impl Drop for CutShort {
    fn drop(&mut self) {
        let (id, server) = (self.id, self.server.clone());
        if let (1.., Ok(runtime)) = (id, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(mut conn) = server.connect().await {
                    let _ = server.kill(&mut conn, id).await;
                }
            });
        }
    }
}

fn refused(reason: String) -> TableError {
    TableError::Refused(reason)
}
