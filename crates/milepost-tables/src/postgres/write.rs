//! Writing: each batch is one COPY, and its commit moves the mark.

use std::ops::Range;
use std::pin::pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{CopyInSink, Statement};

use crate::batch::{Batch, Value};
use crate::database::{Load, Rejected, Writer};
use crate::error::TableError;
use crate::shown;

use super::catalogue;
use super::connect::{Session, words};
use super::encode::{Encoder, Unfit};
use super::fit::Fit;
use super::marks;
use super::names::{Place, quoted_list};
use super::types::Base;

const DOING: &str = "write rows";
/// A node that hangs between two statements shall not hold up the next attempt for longer.
const IDLE_SECONDS: u32 = 120;

pub(super) async fn writer(session: Session, load: &Load, skip: bool) -> Result<Box<dyn Writer>, TableError> {
    let staging = catalogue::get(&session, &load.staging).await?;
    let natives = load.columns.iter().map(|(name, _)| Ok(&staging.natives[staging.column(name)?]));
    let natives = natives.collect::<Result<Vec<_>, TableError>>()?;
    if natives.iter().any(|native| native.base == Base::Money) {
        check_money(&session).await?;
    }
    // What was lost with the server begins anew or goes on from the mark, which is lost with it: only the end has to wait
    // for the disk.
    let settings = format!("SET synchronous_commit = off; SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'");
    session.run(DOING, &settings).await?;
    let columns = quoted_list(load.columns.iter().map(|(name, _)| name.as_str()));
    let sql = format!("COPY {} ({columns}) FROM STDIN", staging.place.sql());
    let statement = session.client.prepare(&sql).await.map_err(|error| session.failed(DOING, &error))?;
    let encoder = Encoder::new(natives.iter().map(|native| Fit::of(native)).collect());
    let into = session.place(&load.into);
    let staging = staging.place;
    let (load, sent) = (load.clone(), Vec::new());
    Ok(Box::new(PostgresWriter {
        session,
        load,
        into,
        staging,
        statement,
        encoder,
        skip,
        sent,
        open: false,
        written: 0,
    }))
}

/// How money is read depends on a setting of the server, and so what it would be.
async fn check_money(session: &Session) -> Result<(), TableError> {
    let same = session.ask(DOING, "SELECT '1234.56'::money::numeric = 1234.56", &[]).await;
    if matches!(&same, Ok(rows) if rows[0].get(0)) {
        return Ok(());
    }
    Err(TableError::Refused(format!(
        "{} would read amounts of money as others than they are; set lc_monetary = 'C' there, or make the column numeric",
        session.shown()
    )))
}

struct PostgresWriter {
    session: Session,
    load: Load,
    into: Place,
    staging: Place,
    statement: Statement,
    encoder: Encoder,
    skip: bool,
    /// The row of each line of the COPY that is under way.
    sent: Vec<usize>,
    /// There is a transaction.
    open: bool,
    /// Rows since the last commit.
    written: u64,
}

/// What became of some rows.
enum Sent {
    /// They are written, but for those that could not be.
    Written { rejected: Vec<Rejected> },
    /// None is: the server refused one, and said which, or not.
    Undone { bad: Option<Rejected>, reason: String },
}

#[async_trait]
impl Writer for PostgresWriter {
    async fn write(&mut self, batch: &Batch) -> Result<Vec<Rejected>, TableError> {
        let mut rejected = Vec::new();
        let (mut next, mut step) = (0, batch.rows());
        let mut known: Option<Rejected> = None;
        while next < batch.rows() {
            if let Some(bad) = known.take_if(|bad| bad.row == next) {
                rejected.push(bad);
                next += 1;
                continue;
            }
            // Those before a bad one were good, so they go by themselves.
            let end = known.as_ref().map_or(batch.rows().min(next + step), |bad| bad.row);
            match self.send(batch, next..end).await? {
                Sent::Written { rejected: mut more } => {
                    rejected.append(&mut more);
                    next = end;
                    step = step.saturating_mul(2);
                }
                Sent::Undone { bad: Some(bad), .. } => {
                    // Where one is bad others often are: few are sent in vain.
                    step = (bad.row - next).max(1);
                    known = Some(bad);
                }
                Sent::Undone { bad: None, reason } if end - next == 1 => {
                    rejected.push(self.rejected(batch, next, None, reason));
                    next = end;
                }
                Sent::Undone { bad: None, .. } => step = (end - next) / 2,
            }
        }
        Ok(rejected)
    }

    async fn commit(&mut self, after: Option<Vec<Value>>, rejected: u64) -> Result<(), TableError> {
        let begin = if self.open { "" } else { "BEGIN; " };
        let advance = marks::advance(&self.into, &self.load, self.written, rejected, after.as_deref());
        match self.session.client.batch_execute(&format!("{begin}{advance}; COMMIT")).await {
            Ok(()) => {
                (self.open, self.written) = (false, 0);
                Ok(())
            }
            Err(error) if marks::is_fenced(&error) => {
                self.roll_back().await?;
                Err(marks::fenced(&self.load))
            }
            Err(error) => Err(self.session.failed("commit rows", &error)),
        }
    }
}

impl PostgresWriter {
    /// One COPY. What is not skipped ends the transaction.
    async fn send(&mut self, batch: &Batch, rows: Range<usize>) -> Result<Sent, TableError> {
        let before = match (self.open, self.skip) {
            (false, false) => "BEGIN",
            (false, true) => "BEGIN; SAVEPOINT batch",
            (true, false) => "",
            (true, true) => "RELEASE SAVEPOINT batch; SAVEPOINT batch",
        };
        // Sent together: none of them waits for the other's answer.
        let client = &self.session.client;
        let (begun, sink) = futures::join!(client.batch_execute(before), client.copy_in::<_, Bytes>(&self.statement));
        begun.map_err(|error| self.session.failed(DOING, &error))?;
        self.open = true;
        let sink = match sink {
            Ok(sink) => sink,
            Err(error) => return Err(self.fenced_or(&error).await),
        };
        let (sent, unfit) = self.pour(sink, batch, rows).await;
        match sent {
            Ok(written) => {
                self.written += written;
                match unfit {
                    unfit if self.skip || unfit.is_empty() => Ok(Sent::Written { rejected: unfit }),
                    mut unfit => Err(self.stop_at(unfit.remove(0)).await),
                }
            }
            Err(error) if is_about_a_row(&error) => {
                let reason = words(&error);
                let bad = self.bad_row(&error).map(|(row, column)| self.rejected(batch, row, column, reason.clone()));
                if !self.skip {
                    let bad = bad.unwrap_or_else(|| self.rejected(batch, 0, None, reason));
                    return Err(self.stop_at(bad).await);
                }
                self.session.run(DOING, "ROLLBACK TO SAVEPOINT batch").await?;
                Ok(Sent::Undone { bad, reason })
            }
            Err(error) => Err(self.fenced_or(&error).await),
        }
    }

    /// Encodes and sends, piece by piece. Rows that cannot be sent are left out; if none may be, it ends before the first.
    async fn pour(
        &mut self,
        sink: CopyInSink<Bytes>,
        batch: &Batch,
        rows: Range<usize>,
    ) -> (Result<u64, tokio_postgres::Error>, Vec<Rejected>) {
        let mut sink = pin!(sink);
        let mut unfit = Vec::new();
        self.sent.clear();
        self.encoder.clear();
        for row in rows {
            match self.encoder.add(batch, row) {
                Ok(()) => self.sent.push(row),
                Err(why) => {
                    unfit.push(self.unfit(batch, row, &why));
                    if !self.skip {
                        break;
                    }
                }
            }
            if let Some(piece) = self.encoder.piece()
                && let Err(error) = sink.send(piece).await
            {
                return (Err(error), unfit);
            }
        }
        if let Some(rest) = self.encoder.rest()
            && let Err(error) = sink.send(rest).await
        {
            return (Err(error), unfit);
        }
        (sink.finish().await, unfit)
    }

    /// Which row the server could not take, and which column: `COPY orders, line 17, column price: "x"`.
    fn bad_row(&self, error: &tokio_postgres::Error) -> Option<(usize, Option<usize>)> {
        let error = error.as_db_error()?;
        let prefix = format!("COPY {}, ", self.staging.name);
        let context = error.where_()?;
        let place = &context[context.find(&prefix)? + prefix.len()..];
        // The words around it are in the server's language.
        let number: String =
            place.chars().skip_while(|one| !one.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        let row = *self.sent.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
        let after = place.split_once(", column ").map(|(_, column)| column);
        let column = self.load.columns.iter().position(|(name, _)| {
            error.column() == Some(name)
                || after.and_then(|after| after.strip_prefix(name.as_str())).is_some_and(|rest| rest.starts_with(':'))
        });
        Some((row, column))
    }

    fn unfit(&self, batch: &Batch, row: usize, why: &Unfit) -> Rejected {
        let name = &self.load.columns[why.column].0;
        let value: String = shown::shown(batch, batch.row(row)[why.column]).to_string().chars().take(200).collect();
        let reason = format!("column \"{name}\" holds {value}, {}", why.reason);
        shown::rejected(&self.load.columns, batch, row, Some(why.column), reason)
    }

    fn rejected(&self, batch: &Batch, row: usize, column: Option<usize>, reason: String) -> Rejected {
        let reason = match column {
            Some(column) => {
                let value: String = shown::shown(batch, batch.row(row)[column]).to_string().chars().take(200).collect();
                format!("column \"{}\" holds {value}: {reason}", self.load.columns[column].0)
            }
            None => reason,
        };
        shown::rejected(&self.load.columns, batch, row, column, reason)
    }

    async fn stop_at(&mut self, bad: Rejected) -> TableError {
        match self.roll_back().await {
            Ok(()) => TableError::Row(Box::new(bad)),
            Err(error) => error,
        }
    }

    /// A table that is gone or another may be another attempt's.
    async fn fenced_or(&self, error: &tokio_postgres::Error) -> TableError {
        let failed = self.session.failed(DOING, error);
        let TableError::Refused(_) = &failed else { return failed };
        // Not on this connection: after a COPY that did not even begin, answers no longer belong to what was asked.
        let session = match self.session.another().await {
            Ok(session) => session,
            Err(error) => return error,
        };
        match marks::find(&session, &self.load.copy, &self.load.into, false).await {
            Ok(Some(found)) if found.token == self.load.token => failed,
            Ok(_) => marks::fenced(&self.load),
            Err(error) => error,
        }
    }

    async fn roll_back(&mut self) -> Result<(), TableError> {
        (self.open, self.written) = (false, 0);
        self.session.run(DOING, "ROLLBACK").await
    }
}

/// Values and constraints, and what is too large for the server: the next row may be a good one.
fn is_about_a_row(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| matches!(&code.code()[..2], "22" | "23" | "54"))
}
