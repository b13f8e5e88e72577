//! Progress and output of running stages, those of many tasks in one round trip: each that went alone would take the
//! writers' lock, and a wait for the disk, for something that nobody waits for.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use crate::error::StoreError;
use crate::model::Note;

use super::columns::call;
use super::commit::OutputColumns;
use super::connect::unavailable;
use super::store::Inner;

/// Notes in one round trip.
pub(super) const MOST: usize = 1024;

pub(super) struct Waiting {
    pub(super) notes: Vec<Note>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) async fn write(inner: Arc<Inner>, group: Vec<Waiting>) {
    let (notes, replies): (Vec<_>, Vec<_>) = group.into_iter().map(|waiting| (waiting.notes, waiting.reply)).unzip();
    let written = send(&inner, notes.into_iter().flatten()).await.map_err(Arc::new);
    for reply in replies {
        // For a caller that is gone there is nobody to tell.
        let _ = reply.send(written.clone().map_err(unavailable("note")));
    }
}

async fn send(inner: &Inner, notes: impl Iterator<Item = Note>) -> Result<(), StoreError> {
    let (mut numbers, mut dones, mut totals) = (Vec::new(), Vec::new(), Vec::new());
    let mut output = OutputColumns::default();
    let mut count = 0;
    for note in notes {
        count += 1;
        if let Some((done, total)) = note.progress {
            numbers.push(note.key.no);
            dones.push(i64::try_from(done).unwrap_or(i64::MAX));
            totals.push(i64::try_from(total).unwrap_or(i64::MAX));
        }
        output.extend(note.key.no, note.output);
    }
    let own = inner.session.number();
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> =
        vec![(&own, Type::INT8), (&numbers, Type::INT8_ARRAY), (&dones, Type::INT8_ARRAY), (&totals, Type::INT8_ARRAY)];
    parameters.extend(output.parameters());
    inner.server.write("note", &call("note_tasks", &parameters), &parameters).await?;
    inner.stats.count(count, 0);
    Ok(())
}
