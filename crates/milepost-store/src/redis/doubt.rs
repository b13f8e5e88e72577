//! Tasks of an earlier claim whose answer was lost, if they are this node's after all.

use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed};

use super::script::DOUBT;
use super::session::is_of;
use super::shared::Shared;

pub(super) async fn find_doubtful(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    let doubtful = shared.doubtful.take(request, |lease| is_of(lease, session));
    if doubtful.is_empty() {
        return Ok(());
    }
    let mut call = shared.prelude.call(&DOUBT, session);
    call.arg(shared.session.last_claim());
    for stored in &doubtful {
        call.arg(stored.key.no);
    }
    let mut answer = match shared.answer(&DOUBT, &call, "claim").await {
        Ok(answer) => answer,
        Err(error) => {
            shared.doubtful.keep(doubtful);
            return Err(error);
        }
    };
    if answer.text(0)? != "ok" {
        return Err(Shared::lost("claim"));
    }
    let grips = answer.list(1)?;
    for (index, stored) in doubtful.into_iter().enumerate() {
        if grips.text(index)? == format!("{} {}", stored.task.version(), stored.epoch) {
            claimed.tasks.push(stored);
        }
    }
    Ok(())
}
