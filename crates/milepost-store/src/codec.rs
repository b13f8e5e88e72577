//! Between our types and what any backend holds, with a checksum over everything that a task is rebuilt from.

use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::message::Arrival;
use milepost_core::plan::{FileRef, PlanDefinition, Settings, TaskDefinition};
use milepost_core::task::{By, Event, PlanStatus, Record, Task, TaskSpec, TaskStatus};
use milepost_core::time::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::model::{Changed, EventQuery, StoredEvent, TaskRef};

pub(crate) fn damaged(what: impl Into<String>, detail: impl ToString) -> StoreError {
    StoreError::Damaged { what: what.into(), detail: detail.to_string() }
}

/// The events of one commit, as one row holds them.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) text: String,
    pub(crate) crc: u32,
}

pub(crate) fn encode_events(events: &[Record]) -> Body {
    let text = serde_json::to_string(events).expect("events are maps with string keys, which JSON can hold");
    Body { crc: crc32fast::hash(text.as_bytes()), text }
}

pub(crate) fn decode_events(text: &str, what: impl Fn() -> String) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    decode_events_into(&mut records, text, what)?;
    Ok(records)
}

/// For many rows in a row: most hold one event or two, and a list made for each would be made too large.
pub(crate) fn decode_events_into(
    records: &mut Vec<Record>,
    text: &str,
    what: impl Fn() -> String,
) -> Result<(), StoreError> {
    let mut decoder = serde_json::Deserializer::from_str(text);
    let decoded = Onto(records).deserialize(&mut decoder).and_then(|()| decoder.end());
    decoded.map_err(|error| damaged(what(), error))
}

/// A list of events, put behind those that are there.
struct Onto<'a>(&'a mut Vec<Record>);

impl<'de> DeserializeSeed<'de> for Onto<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Onto<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(record) = events.next_element()? {
            self.0.push(record);
        }
        Ok(())
    }
}

pub(crate) fn check_body(text: &str, crc: u32, what: impl Fn() -> String) -> Result<(), StoreError> {
    if crc32fast::hash(text.as_bytes()) == crc {
        Ok(())
    } else {
        Err(damaged(what(), "its checksum does not fit its content"))
    }
}

/// What a plan has become, as a row of the log holds it. Plans of one task write two of these, so it is short.
#[derive(Serialize, Deserialize)]
struct PlanBody {
    is: PlanStatus,
    at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<By>,
}

pub(crate) fn encode_plan_change(status: PlanStatus, by: Option<&By>, at: Timestamp) -> Body {
    let body = PlanBody { is: status, at: at.as_millis(), by: by.cloned() };
    let text = serde_json::to_string(&body).expect("names and numbers are JSON");
    Body { crc: crc32fast::hash(text.as_bytes()), text }
}

pub(crate) fn decode_plan_change(text: &str, what: impl Fn() -> String) -> Result<Changed, StoreError> {
    let body: PlanBody = serde_json::from_str(text).map_err(|error| damaged(what(), error))?;
    Ok(Changed::Plan { status: body.is, by: body.by, at: Timestamp::from_millis(body.at) })
}

/// The events of one commit, or of several that follow one another, and the sequence of the first.
#[derive(Debug)]
pub(crate) struct LogRow {
    pub(crate) sequence: u64,
    pub(crate) records: Vec<Record>,
    /// Why it cannot be read; it has no records then, and how many it had shows by the row after it.
    pub(crate) lost: Option<String>,
}

impl LogRow {
    pub(crate) fn read(sequence: u64, text: &str, crc: u32, what: impl Fn() -> String) -> Self {
        match check_body(text, crc, &what).and_then(|()| decode_events(text, &what)) {
            Ok(records) => Self { sequence, records, lost: None },
            Err(error) => Self::lost(sequence, &error),
        }
    }

    pub(crate) fn lost(sequence: u64, error: &StoreError) -> Self {
        Self { sequence, records: Vec::new(), lost: Some(error.to_string()) }
    }
}

/// The events behind `after` by their numbers, of rows in order. What cannot be read has a stand-in, so that numbers stay
/// dense. `end` is the task's version if these are the last of its rows.
pub(crate) fn number_events(
    log: impl IntoIterator<Item = LogRow>,
    query: &EventQuery,
    end: Option<u64>,
    created_at: Timestamp,
) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    let mut numbers = Numbers { next: query.after + 1, at: created_at, why: None };
    for LogRow { sequence, records, lost } in log {
        numbers.stand_in_until(sequence, &mut events);
        if events.len() >= query.limit {
            break;
        }
        if let Some(reason) = lost {
            numbers.why = Some(reason);
            continue;
        }
        for (sequence, record) in (sequence..).zip(records) {
            numbers.at = record.at();
            if sequence >= numbers.next {
                events.push(StoredEvent { sequence, record });
                numbers.next = sequence + 1;
            }
        }
        numbers.why = None;
    }
    // A row that is the last of a page stands for one event at least, so that the next page goes on behind it.
    let end = end.unwrap_or(numbers.next - u64::from(numbers.why.is_none()));
    numbers.stand_in_until(end + 1, &mut events);
    events.truncate(query.limit);
    events
}

/// How far a log has been numbered.
struct Numbers {
    next: u64,
    /// Of the last event that could be read.
    at: Timestamp,
    /// Why the row before cannot be read.
    why: Option<String>,
}

impl Numbers {
    fn stand_in_until(&mut self, sequence: u64, events: &mut Vec<StoredEvent>) {
        while self.next < sequence {
            let reason = self.why.clone().unwrap_or_else(|| "its row is missing".to_owned());
            let record = Record::new(self.at, Event::EventLost { reason });
            events.push(StoredEvent { sequence: self.next, record });
            self.next += 1;
        }
    }
}

/// A task rebuilt from its log, and how many events that took.
pub(crate) struct Folded {
    pub(crate) task: Task,
    pub(crate) events: u64,
}

impl Folded {
    pub(crate) fn is_damaged(&self) -> bool {
        self.task.damage().is_some()
    }
}

/// What a task's row says of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogHead {
    pub(crate) version: u64,
    pub(crate) last_event: i64,
    pub(crate) status: TaskStatus,
}

/// What a whole log makes of a task. The creation is among its rows, though the task begins with it: every row is checked.
pub(crate) fn fold_log(key: &TaskRef, spec: Arc<TaskSpec>, log: Vec<LogRow>, head: &LogHead) -> Folded {
    let mut task = Task::created(spec);
    if log.first().is_none_or(|row| row.sequence != 1) {
        task.mark_damaged(&format!("the log of task {} is damaged: its first event is missing", key.id));
    }
    fold_rows(key, task, log, head)
}

/// What a log makes of a task, row by row; the first may begin before the task ends. A log that cannot be read, or that no
/// sequence of decisions can have written, makes a damaged task, which shows what its row shows.
pub(crate) fn fold_rows(
    key: &TaskRef,
    mut task: Task,
    log: impl IntoIterator<Item = LogRow>,
    head: &LogHead,
) -> Folded {
    let first = task.version();
    let broken = |detail: &dyn std::fmt::Display| format!("the log of task {} is damaged: {detail}", key.id);
    for LogRow { sequence, records, lost } in log {
        if let Some(reason) = lost {
            task.mark_damaged(&reason);
        }
        let known = usize::try_from((first + 1).saturating_sub(sequence)).unwrap_or(usize::MAX);
        for (record, sequence) in records.iter().zip(sequence..).skip(known) {
            if sequence != task.version() + 1 {
                task.mark_damaged(&broken(&format!("event {sequence} follows event {}", task.version())));
                let status = task.status();
                task.place_damaged(sequence - 1, status);
            }
            if let Err(error) = task.apply_in_place(record) {
                task.mark_damaged(&broken(&error));
                task.apply_in_place(record).expect("anything may happen to a damaged task");
            }
        }
    }
    let (version, status) = (task.version(), task.status());
    if task.damage().is_none() && (version, status) != (head.version, head.status) {
        let is = format!("the task is at {} {}", head.version, head.status);
        task.mark_damaged(&broken(&format!("it ends at version {version} {status}, and {is}")));
    }
    if task.damage().is_some() {
        task.place_damaged(head.version, head.status);
    }
    Folded { events: head.version.saturating_sub(first), task }
}

/// What a plan's tasks share, read once.
#[derive(Debug, Clone)]
pub(crate) struct SharedPlan {
    pub(crate) definition: Arc<PlanDefinition>,
    pub(crate) settings: Arc<Settings>,
}

impl SharedPlan {
    pub(crate) fn new(definition: PlanDefinition) -> Self {
        Self { settings: Arc::new(definition.settings.clone()), definition: Arc::new(definition) }
    }

    pub(crate) fn id(&self) -> &PlanId {
        &self.definition.id
    }
}

/// The part of a task's definition that columns do not hold.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct ConfigBody {
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    input: serde_json::Value,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    matrix: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stages: Option<milepost_core::plan::StageList>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<FileRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<Arrival>>,
}

pub(crate) fn encode_config(task: &TaskDefinition) -> (Option<String>, u32) {
    let body = ConfigBody {
        input: task.input.clone(),
        matrix: task.matrix.clone(),
        stages: task.stages.clone(),
        file: task.file.clone(),
        message: task.message.clone(),
    };
    let encode = |body| serde_json::to_string(body).expect("a task's definition came from JSON or YAML");
    let text = (body != ConfigBody::default()).then(|| encode(&body));
    let crc = config_crc(&task.id, task.tenant.as_ref(), text.as_deref());
    (text, crc)
}

/// Of what makes a task the one that it is: under another name it would be another.
fn config_crc(id: &TaskId, tenant: Option<&Tenant>, body: Option<&str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [Some(id.as_str()), tenant.map(Tenant::as_str), body] {
        hasher.update(part.unwrap_or_default().as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize()
}

/// A task's definition as it is stored, whatever it is stored in.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) key: TaskRef,
    pub(crate) plan: i64,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) created_at: Timestamp,
    pub(crate) body: Option<String>,
    pub(crate) crc: u32,
}

impl Config {
    pub(crate) fn definition(self, rank: i64) -> Result<TaskDefinition, StoreError> {
        let body = self.read_body()?;
        Ok(self.with_body(body, rank))
    }

    /// One that cannot be read says so, and has its names alone.
    pub(crate) fn spec(self, plan: &SharedPlan, rank: i64) -> Arc<TaskSpec> {
        let created_at = self.created_at;
        let (body, damage) = match self.read_body() {
            Ok(body) => (body, None),
            Err(error) => (ConfigBody::default(), Some(error.to_string())),
        };
        let spec = TaskSpec::new(&plan.definition, plan.settings.clone(), self.with_body(body, rank), created_at);
        Arc::new(TaskSpec { damage, ..spec })
    }

    fn read_body(&self) -> Result<ConfigBody, StoreError> {
        let what = || format!("the definition of task {}", self.key.id);
        if self.crc != config_crc(&self.key.id, self.tenant.as_ref(), self.body.as_deref()) {
            // Written before names were part of it.
            check_body(self.body.as_deref().unwrap_or_default(), self.crc, what)?;
        }
        let Some(text) = &self.body else { return Ok(ConfigBody::default()) };
        serde_json::from_str(text).map_err(|error| damaged(what(), error))
    }

    fn with_body(self, body: ConfigBody, rank: i64) -> TaskDefinition {
        TaskDefinition {
            id: self.key.id,
            tenant: self.tenant,
            priority: i32::try_from(-rank).unwrap_or(0),
            input: body.input,
            matrix: body.matrix,
            stages: body.stages,
            file: body.file,
            message: body.message,
        }
    }
}

/// Tells the same plan from another of the same name.
pub(crate) fn digest(definition: &str, tasks: &[TaskDefinition]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(definition);
    let mut text = Vec::new();
    for task in tasks {
        text.clear();
        serde_json::to_writer(&mut text, task).expect("a task's definition came from JSON or YAML");
        hash.update(&text);
    }
    hash.finalize().into()
}
