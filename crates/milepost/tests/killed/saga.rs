//! An order that is paid, packed and shipped, or undone; every stage leaves a line behind when it runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use milepost::{Context, ErrorType, Failure, Retry, millis};
use milepost_core::task::EventView;
use serde::{Deserialize, Serialize};

/// The order that cannot be shipped.
pub(crate) const FAILS: &str = "fails";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) fails: bool,
    pub(crate) witness: PathBuf,
}

impl Order {
    /// One line in one write, so that a kill leaves the whole of it or nothing.
    fn note(&self, stage: &str) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.witness).unwrap();
        file.write_all(format!("{} {stage}\n", self.id).as_bytes()).unwrap();
    }
}

#[milepost::workflow]
pub(crate) async fn saga(ctx: &mut Context, order: Order) -> Result<String, Failure> {
    let key = ctx.uuid();
    let (refunded, released) = (order.clone(), order.clone());
    let payment = ctx
        .stage("charge")
        .rollback_of(move |payment: Option<String>| undo(refunded.clone(), format!("refund {payment:?}")))
        .run(|| async {
            order.note("charge");
            Ok::<_, Failure>(format!("paid with {key}"))
        })
        .await?;
    // Fails as often as it says, in any process: its attempts are in the log.
    let flaky = || async { Err::<(), _>(Failure::retryable(ErrorType::Network, "no answer")) };
    let refused = ctx.stage("ask").retry(Retry::exponential(millis(4)).attempts(3)).run(flaky).await.unwrap_err();
    ctx.sleep("cool-off", millis(5)).await?;
    let begun = ctx.now();
    ctx.stage("pack")
        .rollback(move || undo(released.clone(), "unpack".to_owned()))
        .run(|| async {
            order.note("pack");
            Ok::<_, Failure>(())
        })
        .await?;
    let ship = || async {
        order.note("ship");
        if order.fails { Err(Failure::fatal(ErrorType::Business, "nobody lives there")) } else { Ok(()) }
    };
    ctx.stage("ship").run(ship).await?;
    Ok(format!("{payment} after {:?} attempts, {}", refused.attempts, begun.as_millis() > 0))
}

async fn undo(order: Order, what: String) -> Result<(), Failure> {
    order.note(&what);
    Ok(())
}

/// What ran was recorded as started before it did.
pub(crate) fn no_more_runs_than_starts(witness: &Path, id: &str, log: &[EventView]) {
    let witness = std::fs::read_to_string(witness).unwrap();
    for stage in ["charge", "pack", "ship"] {
        let ran = witness.lines().filter(|line| *line == format!("{id} {stage}")).count();
        let started = |event: &&EventView| {
            let undoes = event.payload["rollback"] == true;
            event.event_type == "STAGE_STARTED" && event.payload["stage"] == stage && !undoes
        };
        let starts = log.iter().filter(started).count();
        assert!((1..=starts).contains(&ran), "{id} {stage} ran {ran} times and was started {starts} times");
    }
}
