//! Claims of which nobody knows whether they have arrived, or that nobody waited for: their tasks may be this node's, and
//! no other node would run them. The next claim finds out.

use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, StoredTask};

use super::session::is_of;
use super::shared::Shared;

/// Tasks of an earlier claim that was cut off, if they are this node's after all.
pub(super) async fn find_doubtful(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    let doubtful: Vec<StoredTask> = {
        let mut doubtful = shared.doubtful();
        doubtful.retain(|stored| is_of(stored.epoch, session));
        let wanted = |stored: &StoredTask| request.only.as_ref().is_none_or(|plan| *plan == stored.task.spec().plan);
        let (asked, others): (Vec<_>, Vec<_>) = doubtful.drain(..).partition(wanted);
        let mut asked = asked.into_iter();
        let found = asked.by_ref().take(request.limit).collect();
        doubtful.extend(asked.chain(others));
        found
    };
    if doubtful.is_empty() {
        return Ok(());
    }
    let numbers: Vec<String> = doubtful.iter().map(|stored| stored.key.no.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let grips = match shared.question("grips", &numbers, "claim").await {
        Ok(grips) => grips,
        Err(error) => {
            shared.doubtful().extend(doubtful);
            return Err(error);
        }
    };
    for (index, stored) in doubtful.into_iter().enumerate() {
        if grips.text(index)? == format!("{} {}", stored.task.version(), stored.epoch) {
            claimed.tasks.push(stored);
        }
    }
    Ok(())
}
