//! What all parts of one handle share: its connection, its session, and the definitions of plans seen of late.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};

use crate::codec::{SharedPlan, damaged};
use crate::contended::Contended;
use crate::doubt::Doubtful;
use crate::error::StoreError;
use crate::model::StoreStats;
use crate::nodes::Membership;

use super::answer::Answer;
use super::link::{Link, unavailable};
use super::script::{Prelude, READ, Script};
use super::session::Session;

/// Plans kept, and how long a definition may be to be kept: some megabytes in all.
const MOST: usize = 1024;
const LONGEST: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) prelude: Prelude,
    pub(super) membership: Membership,
    pub(super) session: Session,
    /// What people call the store.
    pub(super) name: String,
    pub(super) stats: Stats,
    pub(super) doubtful: Doubtful,
    pub(super) contended: Contended,
    /// By number, each with the digest of the definition it was read from: an update may have changed that since.
    plans: Mutex<HashMap<i64, (String, SharedPlan)>>,
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    batches: AtomicU64,
    operations: AtomicU64,
    commits: AtomicU64,
}

impl Stats {
    /// One round trip that wrote so many operations, some of them commits of stages.
    pub(super) fn count(&self, operations: u64, commits: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.commits.fetch_add(commits, Ordering::Relaxed);
    }

    /// When Redis syncs is its own affair.
    pub(super) fn read(&self, round_trips: u64) -> StoreStats {
        StoreStats {
            round_trips,
            syncs: 0,
            batches: self.batches.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    pub(super) fn new(link: Link, prelude: Prelude, membership: Membership, name: String) -> Self {
        let (session, stats) = (Session::default(), Stats::default());
        let (doubtful, contended, plans) = (Doubtful::default(), Contended::default(), Mutex::default());
        Self { link, prelude, membership, session, name, stats, doubtful, contended, plans }
    }

    /// A call on behalf of this process as it is now.
    pub(super) fn call(&self, script: &Script) -> Cmd {
        self.prelude.call(script, self.session.number())
    }

    pub(super) async fn run(&self, script: &Script, call: &Cmd, operation: &'static str) -> Result<Value, StoreError> {
        self.link.run(script, call).await.map_err(unavailable(operation))
    }

    pub(super) async fn answer(
        &self,
        script: &Script,
        call: &Cmd,
        operation: &'static str,
    ) -> Result<Answer, StoreError> {
        Answer::new(self.run(script, call, operation).await?)
    }

    /// Asks one of the questions of `read.lua`.
    pub(super) async fn question(
        &self,
        name: &str,
        arguments: &[&str],
        operation: &'static str,
    ) -> Result<Answer, StoreError> {
        let mut call = self.call(&READ);
        call.arg(name).arg(arguments);
        self.answer(&READ, &call, operation).await
    }

    /// For everything but commits, which have an error of their own for a node that was given up.
    pub(super) fn lost(operation: &'static str) -> StoreError {
        let source = "this node's lease ran out, or another process has its name; it may go on after its next beat";
        StoreError::Unavailable { backend: "redis", operation, source: source.into() }
    }

    /// What a plan's tasks share, as the digest says it is.
    pub(super) async fn plan(&self, no: i64, digest: &str) -> Result<SharedPlan, StoreError> {
        if let Some((of, plan)) = self.plans().get(&no)
            && of == digest
        {
            return Ok(plan.clone());
        }
        let answer = self.question("shared", &[&no.to_string()], "read a plan").await?;
        let (text, digest) = (answer.text(0)?, answer.text(1)?);
        let definition =
            serde_json::from_str(text).map_err(|error| damaged(format!("the definition of plan {no}"), error))?;
        let plan = SharedPlan::new(definition);
        if text.len() <= LONGEST {
            let mut plans = self.plans();
            if plans.len() >= MOST {
                plans.clear();
            }
            plans.insert(no, (digest.to_owned(), plan.clone()));
        }
        Ok(plan)
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<i64, (String, SharedPlan)>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that goes on although whoever asked for it may not wait for its end: a change that was begun is finished.
pub(super) async fn to_the_end<T: Send + 'static>(
    operation: &'static str,
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(StoreError::Unavailable { backend: "redis", operation, source: error.into() }))
}
