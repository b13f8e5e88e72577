//! Taking tasks on. One script finds candidates, the core decides on them here, and another script takes those that are
//! still as they were seen: lease, tenant lock and slot at once, with the start of their first stages.

use std::sync::Arc;

use milepost_core::plan::{OnTaskFailure, PlanCommand, PlanDefinition, Recovery};
use milepost_core::task::{Claim, Command, Event, TaskStatus, decide_on};
use milepost_core::time::Timestamp;

use crate::codec::Folded;
use crate::error::StoreError;
use crate::going;
use crate::model::{ClaimRequest, Claimed, StoredTask, TaskRef};

use super::answer::Answer;
use super::books::kept;
use super::codec::{Change, Described};
use super::doubt::find_doubtful;
use super::script::{ASIDE, ERA, PICK, TAKE, becomes};
use super::shared::Shared;

/// Tasks taken in one round: nobody else is served while a script runs.
const MOST: usize = 128;
/// After so many rounds the caller is told to come back, whatever there is left.
const ROUNDS: usize = 1000;

pub(super) async fn claim(shared: Arc<Shared>, request: ClaimRequest) -> Result<Claimed, StoreError> {
    let doubtful = shared.doubtful.clone();
    doubtful.claim("redis", async move { claim_now(&shared, &request).await }).await
}

async fn claim_now(shared: &Shared, request: &ClaimRequest) -> Result<Claimed, StoreError> {
    let mut claimed = Claimed { now: request.now.unwrap_or_default(), ..Claimed::default() };
    let session = shared.session.number();
    if session == 0 {
        // A visitor runs nothing.
        return Ok(claimed);
    }
    // Whoever runs one plan only speaks for no other.
    let settled = request.only.is_some() || settle_era(shared, session, request.recovery).await?;
    match claim_rounds(shared, session, request, going::needed(settled), &mut claimed).await {
        // What was taken before is this node's, and nobody else would run it.
        Err(StoreError::Unavailable { .. }) if !claimed.tasks.is_empty() || !claimed.ended.is_empty() => {
            claimed.next_due = Some(claimed.now);
        }
        rounds => rounds?,
    }
    Ok(claimed.in_era(settled))
}

/// A node that claims for the first time finds out which era it is in; false while it cannot tell.
async fn settle_era(shared: &Shared, session: u64, recovery: Recovery) -> Result<bool, StoreError> {
    if shared.session.is_settled(session) {
        return Ok(true);
    }
    let mut call = shared.prelude.call(&ERA, session);
    call.arg(word(recovery));
    match shared.answer(&ERA, &call, "find out which era it is").await?.text(0)? {
        "settled" => shared.session.settle(session),
        "lost" => return Err(Shared::lost("claim")),
        _ => return Ok(false),
    }
    Ok(true)
}

/// As the scripts know it; nothing for a plan that does not say.
pub(super) fn word(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Auto => "auto",
        Recovery::Manual => "manual",
    }
}

async fn claim_rounds(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    needed: u8,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    find_doubtful(shared, session, request, claimed).await?;
    let (mut lost, tries) = (0, shared.contended.tries());
    for _ in 0..ROUNDS {
        let left = request.limit.saturating_sub(claimed.tasks.len() + claimed.ended.len()).min(MOST);
        // Who asks for none wants to know when to come back.
        if left == 0 && request.limit > 0 {
            return Ok(());
        }
        let round = match pick(shared, session, request, needed, left).await? {
            Picked::Again => continue,
            Picked::Round(round) => round,
        };
        claimed.now = round.now;
        if round.tasks.is_empty() && !round.more {
            claimed.next_due = round.next_due;
            shared.contended.over();
            return Ok(());
        }
        let next_due = round.next_due;
        let decided = decide_all(shared, session, request, round).await?;
        if take(shared, session, decided, claimed).await? {
            continue;
        }
        lost += 1;
        if lost >= tries {
            claimed.next_due = next_due;
            shared.contended.come_back(claimed);
            return Ok(());
        }
    }
    claimed.next_due = Some(claimed.now);
    Ok(())
}

/// How plans are told apart by who can run them.
pub(super) fn kind(plan: &PlanDefinition) -> String {
    plan.workflow.as_ref().map_or_else(|| "stages".to_owned(), |flow| format!("flow:{}:{}", flow.version, flow.name))
}

enum Picked {
    /// There was other work to do first.
    Again,
    Round(Round),
}

struct Round {
    tasks: Vec<Described>,
    /// There may be more to find, also when nothing was found yet.
    more: bool,
    /// Something was passed over that could be taken if a task before it ended in being claimed.
    constrained: bool,
    next_due: Option<Timestamp>,
    /// When it was looked at.
    now: Timestamp,
}

async fn pick(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    needed: u8,
    limit: usize,
) -> Result<Picked, StoreError> {
    let mut call = shared.prelude.call(&PICK, session);
    call.arg(request.only.as_ref().map_or("", |plan| plan.as_str())).arg(limit);
    call.arg(request.now.map_or_else(String::new, |now| now.as_millis().to_string()));
    call.arg(word(request.recovery)).arg(needed);
    if request.plans {
        call.arg("stages");
    }
    for flow in request.workflows.iter() {
        call.arg(format!("flow:{}:{}", flow.version, flow.name));
    }
    let mut answer = shared.answer(&PICK, &call, "claim").await?;
    match answer.text(0)? {
        "again" => Ok(Picked::Again),
        "lost" => Err(Shared::lost("claim")),
        "missing" => {
            let id = request.only.as_ref().map(ToString::to_string).unwrap_or_default();
            Err(StoreError::NotFound { what: "plan", id })
        }
        _ => {
            let (more, constrained, next_due) = (answer.is_set(1)?, answer.is_set(2)?, answer.time_if_any(3)?);
            let tasks = answer.list(4)?.lists()?.into_iter().map(Described::read).collect::<Result<_, _>>()?;
            Ok(Picked::Round(Round { tasks, more, constrained, next_due, now: answer.time(5)? }))
        }
    }
}

/// A task as it was seen, and what claiming it makes of it.
struct Decided {
    seen: Seen,
    stored: StoredTask,
    change: Change,
    pauses_plan: bool,
}

struct Seen {
    version: u64,
    lease: u64,
    wake: String,
    digest: String,
}

async fn decide_all(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    round: Round,
) -> Result<Vec<Decided>, StoreError> {
    let mut decided = Vec::with_capacity(round.tasks.len());
    for described in round.tasks {
        let (key, version) = (described.key.clone(), described.head.version);
        let one = match decide_one(shared, session, request, described, round.now).await {
            Ok(one) => one,
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            Err(error) => {
                set_aside(shared, session, &key, version, &error).await?;
                continue;
            }
        };
        let (ended, tenant) = (one.stored.epoch == 0, one.stored.task.spec().tenant.is_some());
        let cut = ended && (round.constrained || tenant || one.pauses_plan);
        decided.push(one);
        if cut {
            // Its end may let another one come before the rest of this round.
            break;
        }
    }
    Ok(decided)
}

async fn decide_one(
    shared: &Shared,
    session: u64,
    request: &ClaimRequest,
    described: Described,
    now: Timestamp,
) -> Result<Decided, StoreError> {
    let (key, head) = (described.key.clone(), described.head);
    let seen = Seen {
        version: head.version,
        lease: described.lease,
        wake: described.wake.clone(),
        digest: described.digest.clone(),
    };
    let Folded { mut task, events } = fold(shared, described).await?;
    let lost = seen.lease != 0 && head.status.is_active() && !task.interrupted();
    let lost_by: Option<Arc<str>> = lost.then(|| task.node().cloned().unwrap_or_else(|| "unknown".into()));
    let claim = Claim { node: request.node.clone(), lost_by, automatic: request.only.is_none() };
    let claim_events = decide_on(&mut task, Command::Claim(claim), now).map_err(StoreError::Task)?;
    let change = Change::of_claim(&task, head.version, &claim_events, events);
    let failed = claim_events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
    let pauses_plan = failed && task.spec().settings.on_task_failure == OnTaskFailure::Pause;
    let held = task.status().is_active();
    let stored = StoredTask {
        key,
        epoch: if held { shared.session.new_lease(session) } else { 0 },
        orphaned: false,
        waits_for_person: false,
        blocked_by: None,
        set_aside: None,
        progress: None,
        claim_events,
        task,
    };
    Ok(Decided { seen, stored, change, pauses_plan })
}

/// The task as its log makes it. A snapshot that is of no use is passed over.
pub(super) async fn fold(shared: &Shared, described: Described) -> Result<Folded, StoreError> {
    let plan = shared.plan(described.plan, &described.digest).await?;
    let key = described.key.clone();
    let had_snapshot = described.has_snapshot();
    match described.fold(&plan) {
        Ok(folded) if folded.is_damaged() && had_snapshot => {
            tracing::warn!(task = %key.id, "a snapshot does not lead to the task; the log is read from its start");
        }
        Err(error) if had_snapshot => {
            tracing::warn!(task = %key.id, %error, "a snapshot is of no use; the log is read from its start");
        }
        folded => return folded,
    }
    let answer = shared.question("described", &[&key.no.to_string()], "read a task").await?;
    Described::read(answer)?.fold(&plan)
}

/// False when others were faster with all of it.
async fn take(shared: &Shared, session: u64, decided: Vec<Decided>, claimed: &mut Claimed) -> Result<bool, StoreError> {
    if decided.is_empty() {
        return Ok(true);
    }
    let mut call = shared.prelude.call(&TAKE, session);
    call.arg(claimed.now.as_millis()).arg(shared.session.new_claim());
    for Decided { seen, stored, change, pauses_plan } in &decided {
        call.arg(stored.key.no).arg(seen.version).arg(seen.lease).arg(&seen.wake).arg(&seen.digest).arg(stored.epoch);
        call.arg(if *pauses_plan { becomes(PlanCommand::Pause) } else { String::new() });
        change.write(&mut call);
    }
    shared.stats.count(decided.len() as u64, 0);
    let answer = shared.answer(&TAKE, &call, "claim").await;
    if let Err(error @ StoreError::Unavailable { .. }) = answer {
        // It may have been taken all the same, and nobody else would run it.
        shared.doubtful.keep(decided.into_iter().map(|decided| decided.stored));
        return Err(error);
    }
    let mut answer = answer?;
    if answer.text(0)? != "ok" {
        return Err(Shared::lost("claim"));
    }
    let mut moved = false;
    for (Decided { stored, seen, .. }, answer) in decided.into_iter().zip(answer.list(1)?.lists()?) {
        match answer.text(0)? {
            "ok" => accept(stored, &answer, claimed)?,
            "kept" => set_aside(shared, session, &stored.key, seen.version, &kept(&answer)?).await?,
            _ => continue,
        }
        moved = true;
    }
    Ok(moved)
}

fn accept(stored: StoredTask, answer: &Answer, claimed: &mut Claimed) -> Result<(), StoreError> {
    let held = stored.epoch != 0;
    debug_assert!(held || stored.task.status() != TaskStatus::Running);
    if held { &mut claimed.tasks } else { &mut claimed.ended }.push(stored);
    if !answer.text(1)?.is_empty() {
        claimed.settled.push(answer.plan_id(1)?);
    }
    Ok(())
}

/// Damaged data is never run from zero: it waits, visibly, for a person.
async fn set_aside(
    shared: &Shared,
    session: u64,
    key: &TaskRef,
    version: u64,
    error: &StoreError,
) -> Result<(), StoreError> {
    tracing::error!(task = %key.id, %error, "task cannot be run; it is left as it is");
    let mut call = shared.prelude.call(&ASIDE, session);
    call.arg(key.no).arg(version).arg(error.to_string());
    shared.run(&ASIDE, &call, "set a damaged task aside").await.map(|_| ())
}
