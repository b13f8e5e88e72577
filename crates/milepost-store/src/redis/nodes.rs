//! This node among the others: joining, renewing its lease, leaving, and who else is there.

use milepost_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::clock::ClockReading;
use crate::codec::damaged;
use crate::error::StoreError;
use crate::nodes::{Beat, Beaten, NodeIdentity, NodeRow};

use super::link::{Link, unavailable};
use super::script::{BEAT, JOIN, LEAVE, LOOK};
use super::shared::Shared;

/// Begins a session, in the place of any earlier one of this name. A visitor has none.
pub(super) async fn join(shared: &Shared) -> Result<(), StoreError> {
    let Some(NodeIdentity { name, boot_id }) = &shared.membership.node else { return Ok(()) };
    let mut call = shared.prelude.call(&JOIN, 0);
    call.arg(&**name).arg(&**boot_id).arg(std::process::id());
    call.arg(shared.membership.lease.get()).arg(shared.membership.patience().get());
    let answer = shared.answer(&JOIN, &call, "join the other nodes").await?;
    shared.session.begin(answer.unsigned(0)?);
    Ok(())
}

pub(super) async fn read_clock(link: &Link) -> Result<ClockReading, StoreError> {
    let asked = Instant::now();
    let time = link.ask(&redis::cmd("TIME")).await.map_err(unavailable("read its clock"))?;
    let (seconds, micros): (i64, i64) =
        redis::from_redis_value(time).map_err(|error| damaged("the server's clock", error))?;
    Ok(ClockReading::answered(asked, Timestamp::from_millis(seconds * 1000 + micros / 1000)))
}

pub(super) async fn beat(shared: &Shared, beat: Beat) -> Result<Beaten, StoreError> {
    let Some(NodeIdentity { name, boot_id }) = &shared.membership.node else { return look(shared).await };
    let mut look_again = None;
    loop {
        let mut call = shared.call(&BEAT);
        call.arg(&**name).arg(shared.membership.lease.get()).arg(shared.membership.patience().get());
        call.arg(beat.in_hand).arg(beat.capacity).arg(&**boot_id);
        let answer = shared.answer(&BEAT, &call, "renew its lease").await?;
        match answer.text(0)? {
            "ok" => {
                let wait = answer.time_if_any(1)?.map(|wait| Millis::new(wait.as_millis().unsigned_abs()));
                look_again = look_again.into_iter().chain(wait).min();
                if !answer.is_set(2)? {
                    let (losses, now) = (shared.session.losses(), Some(answer.time(3)?));
                    return Ok(Beaten { losses, look_again, now });
                }
            }
            "lost" => {
                tracing::warn!(node = %name, "the lease had run out and others were let in; the node begins anew");
                shared.session.lose();
                join(shared).await?;
            }
            "owned" => {
                let pid = u32::try_from(answer.number(1)?).unwrap_or(0);
                let path = format!("node {name} of {}", shared.name);
                return Err(StoreError::Owned { path, pid, command: String::new() });
            }
            other => return Err(damaged("an answer of redis", format!("`{other}` to a beat"))),
        }
    }
}

async fn look(shared: &Shared) -> Result<Beaten, StoreError> {
    loop {
        let answer = shared.answer(&LOOK, &shared.call(&LOOK), "look after other nodes").await?;
        if !answer.is_set(0)? {
            return Ok(Beaten { now: Some(answer.time(1)?), ..Beaten::default() });
        }
    }
}

pub(super) async fn leave(shared: &Shared) -> Result<(), StoreError> {
    if shared.session.number() == 0 {
        return Ok(());
    }
    let call = shared.call(&LEAVE);
    while shared.run(&LEAVE, &call, "leave the other nodes").await? == redis::Value::Int(1) {}
    Ok(())
}

pub(super) async fn nodes(shared: &Shared) -> Result<Vec<NodeRow>, StoreError> {
    let mut nodes = Vec::new();
    for row in shared.question("nodes", &[], "list nodes").await?.lists()? {
        nodes.push(NodeRow {
            name: row.text(0)?.to_owned(),
            boot_id: row.text(1)?.to_owned(),
            started_at: row.time(2)?,
            seen_at: row.time(3)?,
            in_hand: row.unsigned(4)?,
            capacity: row.unsigned(5)?,
            live: row.is_set(6)?,
        });
    }
    nodes.sort_by(|one: &NodeRow, other| one.name.cmp(&other.name));
    Ok(nodes)
}
