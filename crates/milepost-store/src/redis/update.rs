//! Other content under a plan's name: new tasks join, missing ones go, and the others keep what they have done.

use std::collections::{HashMap, HashSet};

use milepost_core::id::TaskId;
use milepost_core::plan::TaskDefinition;

use crate::codec::{Folded, SharedPlan, encode_config};
use crate::error::StoreError;
use crate::model::Submitted;

use super::codec::{Described, Image};
use super::plans::{StoredRef, stored};
use super::script::UPDATE;
use super::shared::Shared;
use super::submit::{Encoded, read_answer, write_new_task};

/// Logs read at once.
const AT_ONCE: usize = 32;

/// None when somebody else changed the plan in the meantime: ask again.
pub(super) async fn update(shared: &Shared, encoded: &Encoded) -> Result<Option<Submitted>, StoreError> {
    let Some(found) = stored(shared, encoded.id()).await? else { return Ok(None) };
    let plan = &encoded.submission.plan;
    let wanted: HashMap<&TaskId, &TaskDefinition> = plan.tasks.iter().map(|task| (&task.id, task)).collect();
    let known: HashSet<&TaskId> = found.tasks.iter().map(|task| &task.key.id).collect();
    let (stay, go): (Vec<&StoredRef>, Vec<_>) = found.tasks.iter().partition(|task| wanted.contains_key(&task.key.id));
    let join: Vec<&TaskDefinition> = plan.tasks.iter().filter(|task| !known.contains(&task.id)).collect();
    let redefined = stay.iter().map(|task| (task.key.no, wanted[&task.key.id].clone())).collect();
    let images = images(shared, &SharedPlan::new(plan.definition.clone()), redefined).await?;

    let mut call = shared.call(&UPDATE);
    call.arg(found.no).arg(&found.digest);
    encoded.write_head(&mut call);
    call.arg(stay.len()).arg(go.len()).arg(join.len());
    for (task, shown) in stay.iter().zip(images) {
        let definition = wanted[&task.key.id];
        let (body, crc) = encode_config(definition);
        call.arg(task.key.no).arg(task.version).arg(definition.tenant.as_ref().map_or("", |tenant| tenant.as_str()));
        call.arg(-i64::from(definition.priority)).arg(body.unwrap_or_default()).arg(crc).arg(shown.image);
        call.arg(u8::from(shown.awaits_message));
    }
    for task in go {
        call.arg(task.key.no).arg(task.version);
    }
    for task in join {
        write_new_task(&mut call, &plan.definition, task, encoded.submission.now);
    }
    encoded.books.write(&mut call);
    let answer = shared.answer(&UPDATE, &call, "update a plan").await?;
    if answer.text(0)? == "again" {
        return Ok(None);
    }
    read_answer(encoded, answer).map(Some)
}

/// What lists show of a task that stays.
struct Shown {
    image: String,
    awaits_message: bool,
}

/// Rows show how far a task is by its stages, which may be others now.
async fn images(
    shared: &Shared,
    plan: &SharedPlan,
    stay: Vec<(i64, TaskDefinition)>,
) -> Result<Vec<Shown>, StoreError> {
    let mut images = Vec::with_capacity(stay.len());
    for some in stay.chunks(AT_ONCE) {
        let some = some.iter().map(|(no, definition)| image(shared, plan, *no, definition));
        images.extend(futures::future::try_join_all(some).await?);
    }
    Ok(images)
}

async fn image(shared: &Shared, plan: &SharedPlan, no: i64, definition: &TaskDefinition) -> Result<Shown, StoreError> {
    let mut described = Described::read(shared.question("described", &[&no.to_string()], "read a task").await?)?;
    let old = described.image.clone();
    (described.config.body, described.config.crc) = encode_config(definition);
    described.config.tenant.clone_from(&definition.tenant);
    described.rank = -i64::from(definition.priority);
    // What cannot be read is set aside when it is claimed.
    Ok(match described.fold(plan) {
        Ok(Folded { task, .. }) if task.damage().is_none() => {
            Shown { image: Image::of(&task).text(), awaits_message: task.awaits_message() }
        }
        Ok(_) | Err(_) => Shown { image: old, awaits_message: false },
    })
}
