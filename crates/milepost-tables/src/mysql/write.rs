//! Writing rows into the table beside the target.

use std::sync::Arc;

use crate::batch::{Batch, Cell, Value};
use crate::database::{Load, Rejected, Writer};
use crate::error::TableError;
use crate::shown::rejected;
use async_trait::async_trait;

use super::begin::lock_own;
use super::connect::Server;
use super::marks::{self, Step};
use super::send::{BESIDE, Bad, Sender};
use super::takes::Takes;
use super::{catalogue, sql};

pub(super) async fn writer(server: &Arc<Server>, load: &Load, skip_bad_rows: bool) -> Result<MyWriter, TableError> {
    let mut conn = server.connect().await?;
    lock_own(server, &mut conn, load).await?;
    let facts = server.facts(&mut conn).await?;
    let gone = || TableError::Fenced { copy: load.copy.clone() };
    let known = catalogue::table(server, &mut conn, &load.staging).await?.ok_or_else(gone)?;
    let columns: Vec<Takes> = (load.columns.iter())
        .map(|(name, kind)| {
            let position = known.position(name).ok_or_else(|| {
                TableError::Refused(format!("table {} in {} has no column {name}", load.into, server.name))
            })?;
            let column = &known.table.columns[position];
            Takes::of(name, kind, &known.natives[position], column.nullable, facts).ok_or_else(|| {
                TableError::Refused(format!(
                    "column {name} of {} in {} is {}, which cannot hold the source's values as they are; `types` or \
                     `if_exists: drop` helps",
                    load.into, server.name, column.native
                ))
            })
        })
        .collect::<Result<_, _>>()?;
    server.tell(&mut conn, "begin to write to", &load.into.to_string(), "SET SESSION autocommit = 0").await?;
    let names = sql::names(load.columns.iter().map(|(name, _)| name.as_str()));
    let staging = sql::table(&load.staging);
    let sender = Sender {
        server: server.clone(),
        conn,
        load: load.clone(),
        insert: format!("INSERT INTO {staging} ({names}) VALUES "),
        load_data: format!(
            "LOAD DATA LOCAL INFILE 'milepost' INTO TABLE {staging} CHARACTER SET binary \
             FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({names})"
        ),
        loads: facts.local_infile && columns.iter().all(|column| column.loads),
        packet: facts.packet.saturating_sub(BESIDE),
        skip_bad_rows,
        buffer: Vec::new(),
    };
    Ok(MyWriter { sender, columns, written: 0 })
}

pub(super) struct MyWriter {
    sender: Sender,
    columns: Vec<Takes>,
    /// Since the last commit.
    written: u64,
}

#[async_trait]
impl Writer for MyWriter {
    async fn write(&mut self, batch: &Batch) -> Result<Vec<Rejected>, TableError> {
        let (good, mut bad) = self.sort_out(batch);
        if bad.is_empty() || self.sender.skip_bad_rows {
            bad.extend(self.sender.send(batch, &good).await?);
        } else {
            // One that the server refuses may come before the one that we do.
            let before = good.partition_point(|row| *row < bad[0].row);
            let first = self.sender.send(batch, &good[..before]).await?;
            bad.splice(0..0, first);
        }
        bad.sort_by_key(|bad| bad.row);
        self.written += (batch.rows() - bad.len()) as u64;
        let columns = &self.sender.load.columns;
        let mut refused = bad.into_iter().map(|bad| rejected(columns, batch, bad.row, bad.column, bad.reason));
        match (self.sender.skip_bad_rows, refused.next()) {
            (false, Some(first)) => Err(TableError::Row(Box::new(first))),
            (_, first) => Ok(first.into_iter().chain(refused).collect()),
        }
    }

    async fn commit(&mut self, after: Option<Vec<Value>>, rejected: u64) -> Result<(), TableError> {
        let step = Step { rows: std::mem::take(&mut self.written), rejected, after };
        match self.advance(&step).await {
            // A connection that was ended: perhaps by another node that has begun the copy anew.
            Err(TableError::Away { .. }) if !self.sender.is_still_own().await => {
                Err(TableError::Fenced { copy: self.sender.load.copy.clone() })
            }
            advanced => advanced,
        }
    }
}

impl MyWriter {
    async fn advance(&mut self, step: &Step) -> Result<(), TableError> {
        let Sender { server, conn, load, .. } = &mut self.sender;
        marks::advance(server, conn, load, step).await?;
        server.tell(conn, "write to", &load.into.to_string(), "COMMIT").await.map(drop)
    }

    /// Rows that may be sent, and those that would not be what they were.
    fn sort_out(&self, batch: &Batch) -> (Vec<usize>, Vec<Bad>) {
        let (mut good, mut bad) = (Vec::with_capacity(batch.rows()), Vec::new());
        let may_be_too_long = batch.size() > self.sender.packet;
        for (row, cells) in batch.iter().enumerate() {
            if may_be_too_long && length(batch, cells) > self.sender.packet {
                bad.push(self.sender.too_long(row));
                continue;
            }
            let refused = self.columns.iter().zip(cells).enumerate().find_map(|(column, (takes, cell))| {
                takes.refuses(batch, *cell).map(|reason| Bad { row, column: Some(column), reason })
            });
            match refused {
                None => good.push(row),
                Some(refused) => bad.push(refused),
            }
        }
        (good, bad)
    }
}

fn length(batch: &Batch, row: &[Cell]) -> usize {
    let length = |cell: &Cell| match cell {
        Cell::Text(span) | Cell::Bytes(span) => batch.bytes(*span).len(),
        Cell::Null | Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_) | Cell::Float(_) => 0,
    };
    row.iter().map(length).sum()
}
