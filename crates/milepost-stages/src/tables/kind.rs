//! One attempt of `uses: copy-table`.

use std::path::PathBuf;
use std::time::Instant;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, Progress, Reporter, StageCall, StageKind};
use milepost_tables::{Address, Copied, Copy, OnRowError, TableError, Watch, copy, open};
use serde_json::{Map, Value, json};

use super::databases::Databases;
use super::request::{self, Request};

/// Where rejected rows go when a plan does not say.
const REJECTED: &str = "milepost-rejected";

/// `copy-table`: one table, from one database to another.
#[derive(Debug)]
pub struct CopyTableKind {
    databases: Databases,
}

impl CopyTableKind {
    pub fn new(databases: Databases) -> Self {
        Self { databases }
    }

    async fn copy(&self, call: &StageCall) -> Result<Outcome, Failure> {
        let began = Instant::now();
        let request = request::parse(&call.with).map_err(|reason| Failure::fatal(ErrorType::Validation, reason))?;
        let (table, into) = (request.table.to_string(), request.into.to_string());
        let copied = copy(self.prepared(request, call).await?, &Told(&call.reporter), &call.cancel).await;
        let Copied { rows, rejected, bytes, ranges, already } = copied.map_err(failure)?;
        let seconds = began.elapsed().as_secs_f64();
        let outputs = [
            ("rows", json!(rows)),
            ("rejected", json!(rejected)),
            ("bytes", json!(bytes)),
            ("ranges", json!(ranges)),
            ("seconds", json!((seconds * 1000.0).round() / 1000.0)),
            ("rowsPerSecond", json!((rows as f64 / seconds.max(0.001)).round() as u64)),
            ("table", json!(table)),
            ("into", json!(into)),
            ("already", json!(already)),
        ];
        Ok(Outcome::Success {
            outputs: outputs.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<Map<_, _>>(),
        })
    }

    async fn prepared(&self, request: Request, call: &StageCall) -> Result<Copy, Failure> {
        let (from, to) = (self.databases.find(&request.from)?, self.databases.find(&request.to)?);
        if let Address::Sqlite(path) = &from
            && !path.exists()
        {
            let reason = format!("there is no database {} to copy from", path.display());
            return Err(Failure::fatal(ErrorType::Business, reason));
        }
        let source = open(&from).await.map_err(failure)?;
        // By this a copy can tell that a table would go into itself.
        let target = if from == to { source.clone() } else { open(&to).await.map_err(failure)? };
        let rejected_file = match request.on_row_error {
            OnRowError::Skip => Some(self.rejected_file(request.rejected.as_deref(), call)?),
            OnRowError::Stop => None,
        };
        Ok(Copy {
            name: call.name(),
            run: call.run,
            from: source,
            to: target,
            table: request.table,
            into: request.into,
            columns: request.columns,
            types: request.types,
            filter: request.filter,
            batch_rows: request.batch_rows,
            if_exists: request.if_exists,
            on_row_error: request.on_row_error,
            rejected_file,
            resume: request.resume,
            verify: request.verify,
            indexes: request.indexes,
            limits: request.limits,
        })
    }

    fn rejected_file(&self, named: Option<&str>, call: &StageCall) -> Result<PathBuf, Failure> {
        let default = || PathBuf::from(REJECTED).join(format!("{}.{}.ndjson", call.task, call.stage));
        self.databases.file(&named.map_or_else(default, PathBuf::from)).map_err(|failure| Failure {
            reason: format!("{}; `rejected` names the file for rejected rows", failure.reason),
            ..failure
        })
    }
}

#[async_trait]
impl StageKind for CopyTableKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        request::check(with)
    }

    /// It is written beside its target: what is cut short, nobody has seen.
    fn interruptible(&self, _with: &Value) -> bool {
        true
    }

    async fn run(&self, call: StageCall) -> Outcome {
        self.copy(&call).await.unwrap_or_else(Outcome::Failure)
    }
}

/// People see how far it is through the attempt's reporter.
struct Told<'a>(&'a Reporter);

impl Watch for Told<'_> {
    fn progress(&self, done: u64, total: u64) {
        self.0.progress(Progress { done, total });
    }

    fn say(&self, line: &str) {
        self.0.output(format!("{line}\n").as_bytes());
    }
}

fn failure(error: TableError) -> Failure {
    let reason = error.to_string();
    match error {
        TableError::Away { .. } => Failure::retryable(ErrorType::Network, reason),
        TableError::Refused(_) | TableError::Row(_) => Failure::fatal(ErrorType::Business, reason),
        TableError::Fenced { .. } => Failure::fatal(ErrorType::Conflict, reason),
        TableError::Cancelled => Failure::retryable(ErrorType::Timeout, "cancelled"),
    }
}
