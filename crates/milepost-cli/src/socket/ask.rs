//! Getting something done in a store: by the owner of a file if it has one, else by owning it for a moment; and as a
//! visitor of a store that nodes share.

use std::path::Path;
use std::time::{Duration, Instant};

use milepost_engine::owner::{CallError, Order, call};
use milepost_engine::{Engine, Options};
use milepost_store::StoreError;

use crate::exit::{Exit, Failure};
use crate::plan_file::registry;
use crate::store_url::StoreUrl;

/// How long an owner may take to come or to go before we give up on it.
const PATIENCE: Duration = Duration::from_secs(5);

/// True when somebody goes on with it by himself: the owner who did it, or a node that shares the store.
pub(crate) async fn ask<O: Order>(url: &StoreUrl, order: &O) -> Result<(O::Answer, bool), Failure> {
    match url.file() {
        Some(path) => ask_owner(url, path, order).await,
        None => ask_as_visitor(url, order).await,
    }
}

/// What only the node that holds a task can do reaches that node through the store.
async fn ask_as_visitor<O: Order>(url: &StoreUrl, order: &O) -> Result<(O::Answer, bool), Failure> {
    let store = url.visit().await?;
    let engine = Engine::new(store.clone(), registry(), Options::new("milepost"));
    let answer = order.clone().perform(&engine).await;
    engine.stop().await;
    let goes_on = store.nodes().await?.iter().any(|node| node.live);
    Ok((answer, goes_on))
}

async fn ask_owner<O: Order>(url: &StoreUrl, path: &Path, order: &O) -> Result<(O::Answer, bool), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call(path, order).await {
            Ok(answer) => return Ok((answer, true)),
            Err(CallError::Nobody) => {}
            Err(CallError::Lost(error)) => {
                let message = format!("the process that owns the store went away before it answered: {error}");
                return Err(Failure::new(Exit::OutOfReach, message).help("`milepost status` shows what was done"));
            }
        }
        let options = Options::new("milepost");
        match url.join(&options).await {
            Ok(store) => {
                let engine = Engine::new(store, registry(), options);
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
