//! Reading: one snapshot, pages by key, each page one COPY that is taken as it comes.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use tokio_postgres::CopyOutStream;

use crate::batch::{Batch, Value};
use crate::database::{Rows, Scan};
use crate::error::TableError;

use super::catalogue::{self, Found};
use super::connect::Session;
use super::names::{literal, quoted, value};
use super::parse::{self, Parser};
use super::types::Native;

const DOING: &str = "read a table";
/// A page costs the server a plan and a descent into its index; its rows are streamed, so that only the server could
/// tell a large one from a small one.
const PAGE_ROWS: usize = 50_000;

pub(super) async fn read(session: Session, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
    session.run(DOING, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    // The first question takes the snapshot.
    let found = catalogue::get(&session, &scan.table).await?;
    let asked = scan.columns.iter().map(|(name, _)| found.column(name)).collect::<Result<Vec<_>, _>>()?;
    let natives: Vec<&Native> = asked.iter().map(|position| &found.natives[*position]).collect();
    let pages = Pages::new(&found, &scan, &natives);
    let parser = Parser::new(&scan.columns, &natives);
    let page = Page { stream: None, rows: 0, last: Bytes::new() };
    Ok(Box::new(PostgresRows { session, pages, parser, page, ended: false, scan }))
}

/// How many rows there are.
pub(super) async fn count(session: &Session, found: &Found, filter: Option<&str>) -> Result<u64, TableError> {
    let conditions: Vec<String> = filter.map(within).into_iter().collect();
    let sql = format!("SELECT count(*) FROM {}{}", found.from(), all_of(&conditions));
    let rows = session.ask("count rows", &sql, &[]).await?;
    Ok(rows[0].get::<_, i64>(0) as u64)
}

/// What is asked for, page by page.
#[derive(Debug)]
struct Pages {
    /// `SELECT … FROM …`.
    select: String,
    conditions: Vec<String>,
    after: Option<String>,
    /// The key's columns, in full, and their types by position in a row.
    key: Vec<String>,
    key_types: Vec<(usize, Native)>,
    rows: usize,
}

impl Pages {
    fn new(found: &Found, scan: &Scan, natives: &[&Native]) -> Self {
        // With the table's name before it: a column alone would mean what is selected, which may be cast.
        let full = |name: &str| format!("{}.{}", quoted(&found.place.name), quoted(name));
        let selected = scan.columns.iter().zip(natives).map(|((name, _), native)| native.selected(&full(name)));
        let select = format!("SELECT {} FROM {}", selected.collect::<Vec<_>>().join(", "), found.from());
        let mut pages = Self {
            select,
            conditions: scan.filter.as_deref().map(within).into_iter().collect(),
            after: None,
            key: scan.key.iter().map(|position| full(&scan.columns[*position].0)).collect(),
            key_types: scan.key.iter().map(|position| (*position, natives[*position].clone())).collect(),
            rows: scan.batch_rows.max(PAGE_ROWS),
        };
        let bound = |key: &[Value]| key.iter().map(value).collect::<Vec<_>>();
        if let Some(until) = scan.until.as_deref() {
            pages.conditions.push(pages.compared("<=", &bound(until)));
        }
        pages.after = scan.after.as_deref().map(|after| pages.compared(">", &bound(after)));
        pages
    }

    /// The key beside constants of its types.
    fn compared(&self, sign: &str, constants: &[String]) -> String {
        let constants = constants.iter().zip(&self.key_types).map(|(text, (_, native))| native.constant(text));
        format!("({}) {sign} ({})", self.key.join(", "), constants.collect::<Vec<_>>().join(", "))
    }

    /// Goes on after the row that ended a page.
    fn go_on_after(&mut self, line: &[u8]) {
        let fields = parse::fields(line);
        let constants =
            self.key_types.iter().map(|(position, _)| fields[*position].as_deref().map_or("NULL".into(), literal));
        let constants: Vec<String> = constants.collect();
        self.after = Some(self.compared(">", &constants));
    }

    fn sql(&self) -> String {
        let conditions: Vec<String> = self.conditions.iter().chain(&self.after).cloned().collect();
        let ordered = if self.key.is_empty() {
            String::new()
        } else {
            format!(" ORDER BY {} LIMIT {}", self.key.join(", "), self.rows)
        };
        format!("COPY ({}{}{ordered}) TO STDOUT", self.select, all_of(&conditions))
    }
}

/// A condition in somebody else's words, which may end in a comment.
fn within(condition: &str) -> String {
    format!("({condition}\n)")
}

fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
}

/// The page that is being read.
struct Page {
    stream: Option<Pin<Box<CopyOutStream>>>,
    rows: usize,
    last: Bytes,
}

struct PostgresRows {
    session: Session,
    scan: Scan,
    pages: Pages,
    parser: Parser,
    page: Page,
    ended: bool,
}

#[async_trait]
impl Rows for PostgresRows {
    async fn next(&mut self) -> Result<Option<Batch>, TableError> {
        let mut batch = Batch::new(self.scan.columns.len());
        while !self.ended && !self.is_full(&batch) {
            let Some(line) = self.line().await? else {
                self.ended = true;
                break;
            };
            let spoilt = batch.spoilt.len();
            self.parser.row(&line, &mut batch);
            let is_spoilt = batch.spoilt.len() > spoilt;
            batch.last = is_spoilt.then(|| self.parser.values(&line, &self.scan.key)).filter(|key| !key.is_empty());
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

impl PostgresRows {
    fn is_full(&self, batch: &Batch) -> bool {
        batch.rows() + batch.spoilt.len() >= self.scan.batch_rows || batch.size() >= self.scan.batch_bytes
    }

    /// The next row, from this page or the next; None at the end.
    async fn line(&mut self) -> Result<Option<Bytes>, TableError> {
        loop {
            let stream = match &mut self.page.stream {
                Some(stream) => stream,
                None => {
                    let sql = self.pages.sql();
                    let stream = self.session.client.copy_out(&sql).await;
                    let stream = stream.map_err(|error| self.session.failed(DOING, &error))?;
                    self.page.rows = 0;
                    self.page.stream.insert(Box::pin(stream))
                }
            };
            if let Some(line) = stream.next().await {
                let line = line.map_err(|error| self.session.failed(DOING, &error))?;
                self.page.rows += 1;
                if self.page.rows == self.pages.rows {
                    self.page.last = line.clone();
                }
                return Ok(Some(line));
            }
            if self.pages.key.is_empty() || self.page.rows < self.pages.rows {
                return Ok(None);
            }
            self.page.stream = None;
            self.pages.go_on_after(&std::mem::take(&mut self.page.last));
        }
    }
}
