//! Getting something done in a store: by its owner if it has one, else by owning it for a moment.

use std::time::{Duration, Instant};

use milepost_engine::owner::{CallError, Order, call};
use milepost_engine::{Engine, Options};
use milepost_store::StoreError;

use crate::exit::{Exit, Failure};
use crate::plan_file::registry;
use crate::store::StoreUrl;

/// How long an owner may take to come or to go before we give up on it.
const PATIENCE: Duration = Duration::from_secs(5);

/// True when the owner did it, and goes on by itself.
pub(crate) async fn ask<O: Order>(url: &StoreUrl, order: &O) -> Result<(O::Answer, bool), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call(&url.path, order).await {
            Ok(answer) => return Ok((answer, true)),
            Err(CallError::Nobody) => {}
            Err(CallError::Lost(error)) => {
                let message = format!("the process that owns the store went away before it answered: {error}");
                return Err(Failure::new(Exit::OutOfReach, message).help("`milepost status` shows what was done"));
            }
        }
        match url.own() {
            Ok(store) => {
                let engine = Engine::new(store, registry(), Options::new("milepost"));
                let answer = order.clone().perform(&engine).await;
                engine.stop().await;
                return Ok((answer, false));
            }
            // Just starting or just leaving, or another verb: its turn is over in a moment.
            Err(StoreError::Owned { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(url.failure(error)),
        }
    }
}
