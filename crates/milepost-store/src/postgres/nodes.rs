//! Beats, who is there, and letters between nodes.

use std::sync::atomic::Ordering;

use milepost_core::time::{Millis, Timestamp};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::clock::ClockReading;
use crate::error::StoreError;
use crate::nodes::{Answered, Beat, Beaten, Letter, NodeRow, Posted};

use super::codec::task_id;
use super::columns::call;
use super::connect::Server;
use super::store::Inner;

pub(super) async fn beat(inner: &Inner, beat: Beat) -> Result<Beaten, StoreError> {
    let session = &inner.session;
    let (Some(node), Some(own)) = (&session.membership.node, session.number()) else {
        let rows = inner.server.beat("look after other nodes", "SELECT @.look()", &[]).await?;
        return Ok(Beaten { now: Some(Timestamp::from_millis(rows[0].get(0))), ..Beaten::default() });
    };
    let (name, boot) = (node.name.as_ref(), node.boot_id.as_ref());
    let (lease, lock) = (session.lease_ms(), session.lock_ms());
    let (in_hand, capacity) = (clamp(beat.in_hand), clamp(beat.capacity));
    let parameters: &super::connect::Parameters<'_> = &[
        (&name, Type::TEXT),
        (&boot, Type::TEXT),
        (&own, Type::INT8),
        (&lease, Type::INT8),
        (&lock, Type::INT8),
        (&in_hand, Type::INT8),
        (&capacity, Type::INT8),
    ];
    let row = inner.server.beat("renew the lease of this node", &call("beat", parameters), parameters).await?.remove(0);
    let now = Some(Timestamp::from_millis(row.get("clock")));
    match row.get::<_, i32>("state") {
        0 => {
            let look_again: Option<i64> = row.get("look_again");
            let look_again = look_again.map(|length| Millis::new(length.unsigned_abs()));
            Ok(Beaten { losses: session.losses.load(Ordering::Acquire), look_again, now })
        }
        1 => {
            let losses = session.losses.fetch_add(1, Ordering::AcqRel) + 1;
            session.begin(&inner.server).await?;
            Ok(Beaten { losses, look_again: None, now })
        }
        _ => Err(StoreError::Owned {
            path: format!("the node name `{name}`"),
            pid: 0,
            command: " (another process has registered under it since)".to_owned(),
        }),
    }
}

pub(super) async fn read_clock(server: &Server) -> Result<ClockReading, StoreError> {
    let asked = Instant::now();
    let rows = server.read("read its clock", "SELECT @.now_ms()", &[]).await?;
    Ok(ClockReading::answered(asked, Timestamp::from_millis(rows[0].get(0))))
}

pub(super) async fn leave(inner: &Inner) -> Result<(), StoreError> {
    let Some(own) = inner.session.number() else { return Ok(()) };
    inner.server.write("give up the place of this node", "SELECT @.leave($1)", &[(&own, Type::INT8)]).await?;
    Ok(())
}

pub(super) async fn list(inner: &Inner) -> Result<Vec<NodeRow>, StoreError> {
    let sql = "SELECT *, NOT ended AND expires_at >= @.now_ms() AS live FROM @.nodes ORDER BY name";
    let rows = inner.server.read("list nodes", sql, &[]).await?;
    let node = |row: &tokio_postgres::Row| NodeRow {
        name: row.get("name"),
        boot_id: row.get("boot_id"),
        started_at: Timestamp::from_millis(row.get("started_at")),
        seen_at: Timestamp::from_millis(row.get("seen_at")),
        live: row.get("live"),
        in_hand: row.get::<_, i64>("in_hand").unsigned_abs(),
        capacity: row.get::<_, i64>("capacity").unsigned_abs(),
    };
    Ok(rows.iter().map(node).collect())
}

pub(super) async fn post(inner: &Inner, letter: Letter) -> Result<Option<i64>, StoreError> {
    let own = inner.session.number();
    let task = letter.task.as_str();
    let parameters: &super::connect::Parameters<'_> =
        &[(&own, Type::INT8), (&letter.id, Type::TEXT), (&task, Type::TEXT), (&letter.body, Type::TEXT)];
    let rows = inner.server.write("post a letter", "SELECT @.post_letter($1, $2, $3, $4)", parameters).await?;
    Ok(rows[0].get(0))
}

pub(super) async fn letters(inner: &Inner) -> Result<Vec<Posted>, StoreError> {
    let Some(own) = inner.session.number() else { return Ok(Vec::new()) };
    let sql = "SELECT no, id, task, body FROM @.letters WHERE session = $1 AND answer IS NULL ORDER BY no";
    let rows = inner.server.read("read letters", sql, &[(&own, Type::INT8)]).await?;
    let posted = |row: &tokio_postgres::Row| {
        Ok(Posted { no: row.get(0), letter: Letter { id: row.get(1), task: task_id(row.get(2))?, body: row.get(3) } })
    };
    rows.iter().map(posted).collect()
}

pub(super) async fn answer(inner: &Inner, letter: i64, answer: String) -> Result<(), StoreError> {
    let own = inner.session.number();
    let parameters: &super::connect::Parameters<'_> =
        &[(&own, Type::INT8), (&letter, Type::INT8), (&answer, Type::TEXT)];
    inner.server.write("answer a letter", "SELECT @.answer_letter($1, $2, $3)", parameters).await?;
    Ok(())
}

pub(super) async fn call_others(inner: &Inner) -> Result<(), StoreError> {
    let own = inner.session.number();
    inner.server.write("call the other nodes", "SELECT @.call_others($1)", &[(&own, Type::INT8)]).await?;
    Ok(())
}

pub(super) async fn answer_to(inner: &Inner, letter: i64) -> Result<Answered, StoreError> {
    let sql = "SELECT l.answer, EXISTS (SELECT FROM @.nodes n WHERE n.session = l.session AND NOT n.ended) \
        FROM @.letters l WHERE l.no = $1";
    let rows = inner.server.read("read an answer", sql, &[(&letter, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok(Answered::Never) };
    Ok(match row.get(0) {
        Some(answer) => Answered::With(answer),
        None if row.get(1) => Answered::NotYet,
        None => Answered::Never,
    })
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
