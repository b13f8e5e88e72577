//! Taking up a plan that was there already: what a person asked for by typing `run` again.

use milepost_core::task::PlanStatus;
use milepost_engine::{Target, Verb, VerbError};
use milepost_store::PlanRow;

use super::Run;
use crate::exit::Failure;

/// PENDING and interrupted tasks go on by themselves; paused ones are resumed, and failed ones wait to be asked for.
pub(super) async fn take_up(run: &Run<'_>, row: PlanRow, retry_failed: bool) -> Result<PlanRow, Failure> {
    if retry_failed && row.counts.failed > 0 && row.status != PlanStatus::Cancelled {
        operate(run, &row, Verb::Retry { from_checkpoint: true }, "run --retry-failed").await?;
    }
    let row = reread(run, row).await?;
    let paused = match row.status {
        PlanStatus::Paused => true,
        PlanStatus::Running => row.counts.paused > 0,
        PlanStatus::Created | PlanStatus::Ready => {
            operate(run, &row, Verb::Start, "run").await?;
            false
        }
        PlanStatus::Completed | PlanStatus::Failed | PlanStatus::Cancelled => false,
    };
    if paused {
        operate(run, &row, Verb::Resume, "run").await?;
    }
    reread(run, row).await
}

async fn operate(run: &Run<'_>, row: &PlanRow, verb: Verb, why: &str) -> Result<(), Failure> {
    let by = run.context.by(Some(why.to_owned()));
    match run.engine.operate(Target::Plan(row.id.clone()), verb, by).await {
        Ok(_) => Ok(()),
        // None of the failed tasks can be retried, such as when a checkpoint blocks them; the summary shows why.
        Err(VerbError::Refused(why)) => {
            tracing::warn!("{why}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn reread(run: &Run<'_>, row: PlanRow) -> Result<PlanRow, Failure> {
    Ok(run.engine.store().plan(&row.id).await?.unwrap_or(row))
}
