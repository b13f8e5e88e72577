//! Taking in a plan: whole, or not at all. A large one comes in steps, and is there only when the last has been made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::PlanId;
use milepost_core::plan::{OnTenantConflict, Plan, PlanDefinition, TaskDefinition, Trigger, first_difference};
use milepost_core::time::Timestamp;
use redis::Cmd;

use crate::books::BookChange;
use crate::codec::{damaged, digest, encode_config};
use crate::error::{Clash, StoreError};
use crate::model::{Difference, RequestKey, Resubmit, Start, Submission, Submitted};
use crate::row::FLAG_AWAITS_MESSAGE;

use super::answer::Answer;
use super::books::{Lines, kept};
use super::claim::{kind, word};
use super::codec::Image;
use super::plans::{plan_row, stored};
use super::script::SUBMIT;
use super::shared::Shared;
use super::update::update;

/// Tasks written in one step: nobody else is served while a script runs.
const MOST: usize = 250;
/// How long to wait for another process that submits a plan of the same name.
const PATIENCE: Duration = Duration::from_secs(60);

/// A submission with its plan in the form that scripts read.
pub(super) struct Encoded {
    pub(super) submission: Submission,
    definition: String,
    pub(super) digest: String,
    pub(super) books: Lines,
}

impl From<Submission> for Encoded {
    fn from(mut submission: Submission) -> Self {
        let books = BookChange { keep: std::mem::take(&mut submission.entries), strike: Vec::new() };
        let definition = serde_json::to_string(&submission.plan.definition);
        let definition = definition.expect("a plan's definition came from JSON or YAML");
        let digest = hex(&digest(&definition, &submission.plan.tasks));
        Self { digest, definition, books: Lines::of(&books), submission }
    }
}

impl Encoded {
    pub(super) fn id(&self) -> &PlanId {
        &self.submission.plan.definition.id
    }

    /// Who asks, when, and what for: the same for every step, and for an update.
    pub(super) fn write_head(&self, call: &mut Cmd) {
        let Submission { plan, start, request, now, .. } = &self.submission;
        let settings = &plan.definition.settings;
        call.arg(plan.definition.id.as_str()).arg(u8::from(*start == Start::AtOnce)).arg(now.as_millis());
        match request {
            Some(RequestKey { key, digest }) => call.arg(key).arg(hex(digest)),
            None => call.arg("").arg(""),
        };
        call.arg(u8::from(settings.on_tenant_conflict == OnTenantConflict::Refuse));
        write_plan(call, plan, &self.definition, &self.digest);
    }
}

/// The six arguments that define a plan.
pub(super) fn write_plan(call: &mut Cmd, plan: &Plan, definition: &str, digest: &str) {
    let settings = &plan.definition.settings;
    let recovery = settings.recovery.map_or("", word);
    let ids: Vec<&str> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
    let ids = serde_json::to_string(&ids).expect("a list of names is JSON");
    call.arg(digest).arg(definition).arg(settings.max_concurrency).arg(recovery).arg(kind(&plan.definition)).arg(ids);
}

/// A task as it is before anything has happened to it.
pub(super) fn write_new_task(call: &mut Cmd, plan: &PlanDefinition, task: &TaskDefinition, now: Timestamp) {
    let (body, crc) = encode_config(task);
    let stages = task.stages.as_ref().unwrap_or(&plan.stages);
    let awaits_message = plan.settings.trigger == Trigger::Message && task.message.is_none();
    let image = Image {
        done: 0,
        total: u32::try_from(stages.len()).unwrap_or(u32::MAX),
        stage: stages.first().map(|stage| stage.name.to_string()),
        attempt: 0,
        due_at: None,
        flags: if awaits_message { FLAG_AWAITS_MESSAGE } else { 0 },
        reason: None,
        started_at: None,
        updated_at: now.as_millis(),
        ended_at: None,
    };
    call.arg(task.id.as_str()).arg(task.tenant.as_ref().map_or("", |tenant| tenant.as_str()));
    call.arg(-i64::from(task.priority)).arg(body.unwrap_or_default()).arg(crc).arg(image.text());
    call.arg(u8::from(awaits_message));
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) async fn submit(shared: Arc<Shared>, submission: Submission) -> Result<Submitted, StoreError> {
    let encoded = Encoded::from(submission);
    let asked = Instant::now();
    loop {
        shared.stats.count(1, 0);
        let outcome = if encoded.submission.plan.tasks.len() <= MOST {
            read(&encoded, step(&shared, &encoded, Step::Whole).await?)?
        } else {
            in_steps(&shared, &encoded).await?
        };
        match outcome {
            Outcome::Submitted(submitted) => return Ok(*submitted),
            Outcome::Other => match encoded.submission.resubmit {
                Resubmit::Same => return Err(other_content(&shared, &encoded).await?),
                Resubmit::Update => {
                    if let Some(updated) = update(&shared, &encoded).await? {
                        return Ok(updated);
                    }
                }
            },
            Outcome::Loading(load) if load.given_up => drop_load(&shared, &encoded, load.no).await?,
            Outcome::Loading(_) if asked.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(50)).await,
            Outcome::Loading(_) => {
                let source = "another process is still submitting a plan of this name".into();
                return Err(StoreError::Unavailable { backend: "redis", operation: "submit", source });
            }
        }
    }
}

enum Outcome {
    Submitted(Box<Submitted>),
    /// The plan is there with other content, or was a moment ago.
    Other,
    /// A plan of this name is being loaded.
    Loading(Load),
}

struct Load {
    no: i64,
    given_up: bool,
}

enum Step<'a> {
    Whole,
    Begin,
    Tasks { plan: i64, first: i64, tasks: &'a [TaskDefinition] },
    Open { plan: i64, first: i64 },
    Drop { plan: i64 },
}

async fn step(shared: &Shared, encoded: &Encoded, step: Step<'_>) -> Result<Answer, StoreError> {
    let plan = &encoded.submission.plan;
    let nothing = Lines::default();
    let (word, no, first, tasks, books) = match step {
        Step::Whole => ("whole", 0, 0, &plan.tasks[..], &encoded.books),
        Step::Begin => ("begin", 0, 0, &[][..], &encoded.books),
        Step::Tasks { plan, first, tasks } => ("tasks", plan, first, tasks, &nothing),
        Step::Open { plan, first } => ("open", plan, first, &[][..], &encoded.books),
        Step::Drop { plan } => ("drop", plan, 0, &[][..], &nothing),
    };
    let mut call = shared.call(&SUBMIT);
    call.arg(word).arg(no);
    encoded.write_head(&mut call);
    call.arg(first).arg(plan.tasks.len());
    books.write(&mut call);
    for task in tasks {
        write_new_task(&mut call, &plan.definition, task, encoded.submission.now);
    }
    shared.answer(&SUBMIT, &call, "submit").await
}

async fn in_steps(shared: &Shared, encoded: &Encoded) -> Result<Outcome, StoreError> {
    let begun = step(shared, encoded, Step::Begin).await?;
    if begun.text(0)? != "begun" {
        return read(encoded, begun);
    }
    let (plan, mut first) = (begun.number(1)?, begun.number(2)?);
    let first_of_all = first;
    for tasks in encoded.submission.plan.tasks.chunks(MOST) {
        let answer = step(shared, encoded, Step::Tasks { plan, first, tasks }).await?;
        match answer.text(0)? {
            "loaded" => first += tasks.len() as i64,
            "dropped" => return Ok(Outcome::Loading(Load { no: plan, given_up: false })),
            _ => {
                drop_load(shared, encoded, plan).await?;
                return read(encoded, answer);
            }
        }
    }
    let opened = step(shared, encoded, Step::Open { plan, first: first_of_all }).await?;
    match opened.text(0)? {
        "dropped" => return Ok(Outcome::Loading(Load { no: plan, given_up: false })),
        "kept" => drop_load(shared, encoded, plan).await?,
        _ => {}
    }
    read(encoded, opened)
}

/// Takes back what was loaded of a plan that does not come to be.
async fn drop_load(shared: &Shared, encoded: &Encoded, plan: i64) -> Result<(), StoreError> {
    while step(shared, encoded, Step::Drop { plan }).await?.text(0)? == "more" {}
    Ok(())
}

fn read(encoded: &Encoded, answer: Answer) -> Result<Outcome, StoreError> {
    match answer.text(0)? {
        "other" => Ok(Outcome::Other),
        "loading" => {
            let (no, since) = answer.text(1)?.split_once(' ').unwrap_or(("0", "0"));
            let (no, since) = (no.parse().unwrap_or(0), since.parse::<i64>().unwrap_or(0));
            let given_up = answer.number(2)? - since > answer.number(3)?;
            Ok(Outcome::Loading(Load { no, given_up }))
        }
        _ => read_answer(encoded, answer).map(|submitted| Outcome::Submitted(Box::new(submitted))),
    }
}

/// What submitting and updating answer alike.
pub(super) fn read_answer(encoded: &Encoded, mut answer: Answer) -> Result<Submitted, StoreError> {
    let plan = encoded.id().clone();
    match answer.text(0)? {
        "ok" => read_submitted(&answer.list(1)?, false),
        "replayed" => {
            let kept: Vec<String> = serde_json::from_str(answer.text(1)?)
                .map_err(|error| damaged("the answer kept for a request", error))?;
            let kept = kept.into_iter().map(|text| redis::Value::BulkString(text.into_bytes())).collect();
            read_submitted(&Answer::new(redis::Value::Array(kept))?, true)
        }
        "reused" => {
            let key = encoded.submission.request.as_ref().map(|request| request.key.clone()).unwrap_or_default();
            Err(StoreError::KeyReused { key })
        }
        "taken" => Err(Clash::TaskId { task: answer.task_id(1)?, owner: answer.plan_id(2)? }.into()),
        "busy" => {
            let busy = (1..answer.len()).map(|index| answer.text(index).map(str::to_owned));
            let mut busy = busy.collect::<Result<Vec<_>, _>>()?;
            busy.sort();
            Err(Clash::TenantsBusy { plan, busy }.into())
        }
        "kept" => Err(kept(&answer)?),
        "running" => Err(Clash::Running { plan }.into()),
        "lost" => Err(Shared::lost("submit")),
        other => Err(damaged("an answer of redis", format!("`{other}` to a submission"))),
    }
}

fn read_submitted(answer: &Answer, replayed: bool) -> Result<Submitted, StoreError> {
    let difference = Difference { added: answer.unsigned(1)?, removed: answer.unsigned(2)? };
    Ok(Submitted { created: answer.is_set(0)?, replayed, difference, plan: plan_row(answer, 3)?.0 })
}

/// The digests differ, so there is a difference; a store written by a version with other defaults may leave it unnamed.
async fn other_content(shared: &Shared, encoded: &Encoded) -> Result<StoreError, StoreError> {
    let (new, plan) = (&encoded.submission.plan, encoded.id().clone());
    let old = stored(shared, &plan).await?.map(|stored| stored.plan);
    let difference = old.and_then(|old| first_difference(&old, new));
    Ok(Clash::OtherContent { plan, difference: difference.unwrap_or_else(|| "its content differs".to_owned()) }.into())
}
