//! Taking in plans: each whole, or not at all. New ones go many at a time; those that are there already one by one.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use milepost_core::plan::{
    OnTenantConflict, Plan, PlanCommand, Recovery, Settings, TaskCounts, TaskDefinition, Trigger, first_difference,
};
use milepost_core::task::{Event, PlanStatus, Record, TaskStatus};
use milepost_core::time::Timestamp;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use crate::books::BookChange;
use crate::codec::{Body, digest, encode_config, encode_events};
use crate::error::{Clash, StoreError};
use crate::model::{Difference, PlanRow, Resubmit, Start, Submission, Submitted};
use crate::row::FLAG_AWAITS_MESSAGE;

use super::books::{self, BookColumns};
use super::claim::workflow_key;
use super::columns::{Rules, number, plan_code};
use super::connect::unavailable;
use super::plans::{Answer, Asked, ask};
use super::read::FoundPlan;
use super::requests::KeptAnswer;
use super::store::Inner;
use super::update;

/// Plans in one round trip.
pub(super) const MOST: usize = 256;
/// Tasks in one round trip, unless one plan has more.
const MOST_TASKS: usize = 10_000;
/// How often a submission looks again because the plan has changed since.
const TRIES: usize = 16;

/// A submission in the form the table holds, encoded by its caller, and where its answer goes.
pub(super) struct Waiting {
    pub(super) submission: Submission,
    pub(super) definition: String,
    pub(super) digest: [u8; 32],
    reply: oneshot::Sender<Result<Submitted, StoreError>>,
}

impl Waiting {
    pub(super) fn new(submission: Submission, reply: oneshot::Sender<Result<Submitted, StoreError>>) -> Self {
        let definition = serde_json::to_string(&submission.plan.definition);
        let definition = definition.expect("a plan's definition came from JSON or YAML");
        Self { digest: digest(&definition, &submission.plan.tasks), definition, submission, reply }
    }

    fn plan(&self) -> &Plan {
        &self.submission.plan
    }

    pub(super) fn refuses_busy_tenants(&self) -> bool {
        self.plan().definition.settings.on_tenant_conflict == OnTenantConflict::Refuse
    }

    /// What goes to the books with it, whatever becomes of the plan.
    pub(super) fn for_books(&self) -> BookChange {
        BookChange { keep: self.submission.entries.clone(), strike: Vec::new() }
    }

    fn answer(self, answer: Result<Submitted, StoreError>) {
        let _ = self.reply.send(answer);
    }

    /// What a plan is when it has just been stored.
    fn created(&self) -> Submitted {
        let Submission { plan, start, now, .. } = &self.submission;
        let mut counts = TaskCounts::default();
        counts.add(TaskStatus::Pending, plan.tasks.len() as u64);
        let (status, started_at) = match start {
            Start::AtOnce => (PlanStatus::Running, Some(*now)),
            Start::Later => (PlanStatus::Ready, None),
        };
        let row = PlanRow {
            id: plan.definition.id.clone(),
            status,
            max_concurrency: plan.definition.settings.max_concurrency,
            counts,
            version: 1,
            waits_for_person: false,
            changed_by: None,
            created_at: *now,
            started_at,
            ended_at: None,
        };
        Submitted { plan: row, created: true, replayed: false, difference: Difference::default() }
    }
}

/// What the server says to a plan that was to be new.
#[derive(Debug)]
enum Verdict {
    Stored,
    Refused(StoreError),
    /// The plan is there, or a task's id is taken, or a tenant busy, or the request is known: each has a story of its own.
    LookCloser,
}

pub(super) async fn write(inner: Arc<Inner>, group: Vec<Waiting>) {
    let mut waiting = VecDeque::from(group);
    while !waiting.is_empty() {
        let batch = next_batch(&mut waiting);
        let verdicts = create(&inner, &batch).await;
        match verdicts {
            Ok(verdicts) => {
                for (one, verdict) in batch.into_iter().zip(verdicts) {
                    let answer = match verdict {
                        Verdict::Stored => Ok(one.created()),
                        Verdict::Refused(error) => Err(error),
                        Verdict::LookCloser => look_closer(&inner, &one).await,
                    };
                    one.answer(answer);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for one in batch {
                    one.answer(Err(unavailable("submit")(error.clone())));
                }
            }
        }
    }
}

/// No two in it have a plan, a task, a request or an entry in common, and together they are of a size.
fn next_batch(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let (mut batch, mut tasks): (Vec<Waiting>, usize) = (Vec::new(), 0);
    let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
    while let Some(next) = waiting.pop_front() {
        let plan = next.plan();
        let size = plan.tasks.len();
        let mut names: Vec<String> = plan.tasks.iter().map(|task| format!("task {}", task.id)).collect();
        names.push(format!("plan {}", plan.definition.id));
        names.extend(books::names(&next.for_books()).map(|(book, key)| format!("{} {key}", book.as_str())));
        let key = next.submission.request.as_ref().map(|request| request.key.clone());
        let shares = names.iter().any(|name| ids.contains(name)) || key.as_ref().is_some_and(|key| keys.contains(key));
        if !batch.is_empty() && (shares || tasks + size > MOST_TASKS) {
            waiting.push_front(next);
            break;
        }
        tasks += size;
        ids.extend(names);
        keys.extend(key);
        batch.push(next);
    }
    batch
}

async fn create(inner: &Inner, batch: &[Waiting]) -> Result<Vec<Verdict>, StoreError> {
    let plans: Vec<&Plan> = batch.iter().map(Waiting::plan).collect();
    let ids: Vec<&str> = plans.iter().map(|plan| plan.definition.id.as_str()).collect();
    let answers: Vec<Submitted> = batch.iter().map(Waiting::created).collect();
    let statuses: Vec<i16> = answers.iter().map(|answer| plan_code(answer.plan.status)).collect();
    let definitions: Vec<&str> = batch.iter().map(|one| one.definition.as_str()).collect();
    let digests: Vec<&[u8]> = batch.iter().map(|one| one.digest.as_slice()).collect();
    let mosts: Vec<i32> = plans.iter().map(|plan| number(plan.definition.settings.max_concurrency)).collect();
    let autos: Vec<Option<bool>> = plans.iter().map(|plan| automatic(&plan.definition.settings)).collect();
    let workflows: Vec<Option<String>> =
        plans.iter().map(|plan| plan.definition.workflow.as_ref().map(workflow_key)).collect();
    let refuses: Vec<bool> = batch.iter().map(Waiting::refuses_busy_tenants).collect();
    // What a message has made, its own node runs by preference; and what awaits one, nobody can take.
    let quiets: Vec<bool> = plans.iter().map(|plan| plan.definition.settings.trigger == Trigger::Message).collect();
    let ats: Vec<i64> = batch.iter().map(|one| one.submission.now.as_millis()).collect();
    let created: Vec<Body> = batch.iter().map(|one| creation(one.submission.now)).collect();
    let bodies: Vec<&str> = created.iter().map(|body| body.text.as_str()).collect();
    let crcs: Vec<i64> = created.iter().map(|body| body.crc.into()).collect();
    let requests = batch.iter().zip(&answers);
    let kept: Vec<Option<KeptAnswer<'_>>> = requests
        .map(|(one, answer)| one.submission.request.as_ref().map(|request| KeptAnswer::new(request, answer)))
        .collect();
    let keys: Vec<Option<&str>> = kept.iter().map(|kept| kept.as_ref().map(|kept| kept.key)).collect();
    let key_digests: Vec<Option<&[u8]>> = kept.iter().map(|kept| kept.as_ref().map(|kept| kept.digest)).collect();
    let texts: Vec<Option<&str>> = kept.iter().map(|kept| kept.as_ref().map(|kept| kept.text.as_str())).collect();
    let sizes: Vec<i32> = plans.iter().map(|plan| i32::try_from(plan.tasks.len()).unwrap_or(i32::MAX)).collect();
    let places: Vec<i64> = plans.iter().flat_map(|plan| 1..=plan.tasks.len() as i64).collect();
    let owners: Vec<i64> = plans.iter().zip(1..).flat_map(|(plan, ord)| plan.tasks.iter().map(move |_| ord)).collect();
    let mut tasks = NewTasks::default();
    for plan in &plans {
        tasks.extend(plan, plan.tasks.iter());
    }
    let mut books = BookColumns::default();
    for (one, ord) in batch.iter().zip(1..) {
        books.extend(ord, one.for_books());
    }
    let own = inner.session.number();
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
        (&own, Type::INT8),
        (&ids, Type::TEXT_ARRAY),
        (&statuses, Type::INT2_ARRAY),
        (&definitions, Type::TEXT_ARRAY),
        (&digests, Type::BYTEA_ARRAY),
        (&mosts, Type::INT4_ARRAY),
        (&autos, Type::BOOL_ARRAY),
        (&workflows, Type::TEXT_ARRAY),
        (&refuses, Type::BOOL_ARRAY),
        (&quiets, Type::BOOL_ARRAY),
        (&ats, Type::INT8_ARRAY),
        (&bodies, Type::TEXT_ARRAY),
        (&crcs, Type::INT8_ARRAY),
        (&sizes, Type::INT4_ARRAY),
        (&keys, Type::TEXT_ARRAY),
        (&key_digests, Type::BYTEA_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&owners, Type::INT8_ARRAY),
        (&places, Type::INT8_ARRAY),
    ];
    parameters.extend(tasks.parameters());
    parameters.extend(books.parameters());
    let sql = super::columns::call("create_plans", &parameters);
    let rows = inner.server.write("submit", &sql, &parameters).await?;
    inner.stats.count(batch.len(), 0);
    let verdicts: Vec<i16> = rows[0].get("verdicts");
    let verdict = |(code, ord): (&i16, i64)| match code {
        0 => Verdict::Stored,
        5 => books.refusal(ord, &rows[0]).map_or(Verdict::LookCloser, Verdict::Refused),
        _ => Verdict::LookCloser,
    };
    Ok(verdicts.iter().zip(1..).map(verdict).collect())
}

/// The plan is there already, or something of it is somebody else's.
async fn look_closer(inner: &Inner, one: &Waiting) -> Result<Submitted, StoreError> {
    let Submission { plan, request, resubmit, now, .. } = &one.submission;
    for _ in 0..TRIES {
        if let Some(request) = request
            && let Some(answer) = inner.replay(request, *now).await?
        {
            return Ok(answer);
        }
        let found = inner.find_plan(&plan.definition.id).await?;
        let answer = match (found, resubmit) {
            (None, _) => match clash(inner, one, &plan.tasks, None).await? {
                Some(clash) => return Err(clash.into()),
                None => match create(inner, std::slice::from_ref(one)).await?.remove(0) {
                    Verdict::Stored => Some(one.created()),
                    Verdict::Refused(error) => return Err(error),
                    Verdict::LookCloser => None,
                },
            },
            (Some(found), _) if found.digest == one.digest => carry_on(inner, one, found).await?,
            (Some(found), Resubmit::Same) => return Err(other_content(inner, found, plan).await?),
            (Some(found), Resubmit::Update) => update::update(inner, one, found).await?,
        };
        if let Some(answer) = answer {
            return Ok(answer);
        }
    }
    Err(unavailable("submit")("the plan was changed by others again and again"))
}

/// The same plan again: it is started if it only waited for that, and otherwise left as it is. None when it has changed
/// since it was looked at.
async fn carry_on(inner: &Inner, one: &Waiting, found: FoundPlan) -> Result<Option<Submitted>, StoreError> {
    let Submission { start, request, entries, now, .. } = &one.submission;
    let waits = matches!(found.row.status, PlanStatus::Created | PlanStatus::Ready);
    let starts = *start == Start::AtOnce && waits;
    let automatic = one.plan().definition.settings.recovery == Some(Recovery::Auto);
    let lets_go = starts || *start == Start::AtOnce && !automatic;
    let mut answer = Submitted { plan: found.row, created: false, replayed: false, difference: Difference::default() };
    let expected = answer.plan.version;
    if starts {
        answer.plan.status = PlanStatus::Running;
        answer.plan.version += 1;
        answer.plan.changed_by = None;
        answer.plan.started_at.get_or_insert(*now);
    } else if lets_go {
        answer.plan.version += u64::from(std::mem::take(&mut answer.plan.waits_for_person));
    } else if request.is_none() && entries.is_empty() {
        return Ok(Some(answer));
    }
    let asked = Asked {
        plan: found.no,
        expected: Some(expected),
        rules: starts.then(|| Rules::of(PlanCommand::Start)),
        lets_go,
        counts: false,
        by: None,
        at: *now,
        answer: request.as_ref().map(|request| KeptAnswer::new(request, &answer)),
        books: BookColumns::of(one.for_books()),
    };
    Ok(match ask(inner, asked).await? {
        Answer::Changed => Some(answer),
        Answer::OtherVersion(_) | Answer::Refused(_) => None,
        Answer::Kept(error) => return Err(error),
    })
}

async fn other_content(inner: &Inner, found: FoundPlan, new: &Plan) -> Result<StoreError, StoreError> {
    let plan = found.row.id;
    let old = inner.definition(&plan).await?;
    // A store written by a version with other defaults may leave the difference unnamed.
    let difference = old.and_then(|old| first_difference(&old, new));
    let difference = difference.unwrap_or_else(|| "its content differs".to_owned());
    Ok(Clash::OtherContent { plan, difference }.into())
}

/// What keeps these tasks of the plan from being stored, if anything does.
pub(super) async fn clash(
    inner: &Inner,
    one: &Waiting,
    tasks: &[TaskDefinition],
    own: Option<i64>,
) -> Result<Option<Clash>, StoreError> {
    let definition = &one.plan().definition;
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    let sql = "SELECT c.id, p.id FROM @.task_configs c JOIN @.plans p ON p.no = c.plan WHERE c.id = ANY ($1)";
    let rows = inner.server.read("look up task ids", sql, &[(&ids, Type::TEXT_ARRAY)]).await?;
    let taken: std::collections::HashMap<&str, &str> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut seen = HashSet::new();
    for task in tasks {
        let owner = match taken.get(task.id.as_str()) {
            Some(owner) => super::codec::plan_id(owner)?,
            None if seen.insert(&task.id) => continue,
            None => definition.id.clone(),
        };
        return Ok(Some(Clash::TaskId { task: task.id.clone(), owner }));
    }
    if !one.refuses_busy_tenants() {
        return Ok(None);
    }
    let tenants: BTreeSet<&str> = tasks.iter().filter_map(|task| task.tenant.as_ref()).map(|t| t.as_str()).collect();
    let tenants: Vec<&str> = tenants.into_iter().collect();
    let sql = "SELECT l.tenant FROM @.locks l JOIN @.task_runtimes r ON r.no = l.task \
               WHERE l.tenant = ANY ($1) AND l.expires_at >= @.now_ms() AND r.plan IS DISTINCT FROM $2 ORDER BY 1";
    let parameters: &super::connect::Parameters<'_> = &[(&tenants, Type::TEXT_ARRAY), (&own, Type::INT8)];
    let rows = inner.server.read("look up tenants", sql, parameters).await?;
    let busy: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok((!busy.is_empty()).then(|| Clash::TenantsBusy { plan: definition.id.clone(), busy }))
}

/// None when the plan does not say.
pub(super) fn automatic(settings: &Settings) -> Option<bool> {
    settings.recovery.map(|recovery| recovery == Recovery::Auto)
}

/// The first event of a task.
pub(super) fn creation(now: Timestamp) -> Body {
    encode_events(&[Record::new(now, Event::TaskCreated {})])
}

/// Tasks that are to join, in columns.
#[derive(Debug, Default)]
pub(super) struct NewTasks {
    ids: Vec<String>,
    tenants: Vec<Option<String>>,
    ranks: Vec<i64>,
    bodies: Vec<Option<String>>,
    crcs: Vec<i64>,
    stages: Vec<Option<String>>,
    totals: Vec<i32>,
    flags: Vec<i16>,
}

impl NewTasks {
    pub(super) fn extend<'a>(&mut self, plan: &Plan, tasks: impl Iterator<Item = &'a TaskDefinition>) {
        for task in tasks {
            let (body, crc) = encode_config(task);
            let stages = task.stages.as_ref().unwrap_or(&plan.definition.stages);
            self.ids.push(task.id.to_string());
            self.tenants.push(task.tenant.as_ref().map(ToString::to_string));
            self.ranks.push(-i64::from(task.priority));
            self.bodies.push(body);
            self.crcs.push(crc.into());
            self.stages.push(stages.first().map(|stage| stage.name.to_string()));
            self.totals.push(i32::try_from(stages.len()).unwrap_or(i32::MAX));
            let awaits = plan.definition.settings.trigger == Trigger::Message && task.message.is_none();
            self.flags.push(if awaits { FLAG_AWAITS_MESSAGE as i16 } else { 0 });
        }
    }

    pub(super) fn parameters(&self) -> [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 8] {
        [
            (&self.ids, Type::TEXT_ARRAY),
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.ranks, Type::INT8_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.crcs, Type::INT8_ARRAY),
            (&self.stages, Type::TEXT_ARRAY),
            (&self.totals, Type::INT4_ARRAY),
            (&self.flags, Type::INT2_ARRAY),
        ]
    }
}
