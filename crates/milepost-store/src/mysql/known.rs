//! What there is already of what submissions name, asked for all of them at once.

use std::collections::{BTreeSet, HashMap, HashSet};

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{OnTenantConflict, PlanDefinition, TaskDefinition};
use mysql_async::Row;

use crate::error::Clash;
use crate::model::Submission;

use super::codec::{Columns, Sql};
use super::requests::Requests;
use super::sql::{NOW, PACKET, texts};
use super::states::{PLAN, PlanState};
use super::submit::EncodedSubmission;

/// What there is of what submissions name.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) requests: Requests,
    pub(super) plans: HashMap<PlanId, PlanState>,
    /// The plans that have the tasks.
    pub(super) owners: HashMap<TaskId, PlanId>,
    /// The plans that hold the tenants.
    pub(super) busy: HashMap<String, i64>,
}

/// All that submissions have to know, asked for with the lock. Nothing when there is none of them.
pub(super) fn questions<'a>(submissions: impl Iterator<Item = &'a EncodedSubmission>) -> Vec<String> {
    let submissions: Vec<&Submission> = submissions.map(|encoded| &encoded.submission).collect();
    if submissions.is_empty() {
        return Vec::new();
    }
    let keys = submissions.iter().filter_map(|submission| submission.request.as_ref());
    let plans = submissions.iter().map(|submission| submission.plan.definition.id.as_str());
    let tasks = submissions.iter().flat_map(|submission| &submission.plan.tasks);
    // Of a very large plan the rest is asked for later.
    let tasks = tasks.map(|task| task.id.as_str()).take(PACKET / 256);
    let refusing = submissions.iter().filter(|submission| refuses(&submission.plan.definition));
    let tenants = refusing.flat_map(|submission| tenants(&submission.plan.tasks));
    vec![
        format!(
            "SELECT name, digest, at, answer FROM milepost_requests WHERE name IN ({})",
            texts(keys.map(|request| request.key.as_str()))
        ),
        format!("SELECT {PLAN} FROM sync_tasks p WHERE p.name IN ({})", texts(plans)),
        owners_of(&texts(tasks)),
        busy_among(&texts(tenants)),
    ]
}

pub(super) fn owners_of(tasks: &str) -> String {
    format!(
        "SELECT c.unit_name, p.name FROM task_unit_configs c JOIN sync_tasks p ON p.id = c.task_id \
         WHERE c.unit_name IN ({tasks})"
    )
}

pub(super) fn busy_among(tenants: &str) -> String {
    format!(
        "SELECT l.tenant, r.task_id FROM milepost_locks l JOIN task_unit_runtimes r ON r.id = l.task \
         WHERE l.expires_at >= {NOW} AND l.tenant IN ({tenants})"
    )
}

fn refuses(plan: &PlanDefinition) -> bool {
    plan.settings.on_tenant_conflict == OnTenantConflict::Refuse
}

pub(super) fn tenants(tasks: &[TaskDefinition]) -> BTreeSet<&str> {
    tasks.iter().filter_map(|task| task.tenant.as_ref()).map(|tenant| tenant.as_str()).collect()
}

impl Known {
    pub(super) fn read(answers: Vec<Vec<Row>>) -> Sql<Self> {
        let mut answers = answers.into_iter();
        let mut known = Self { requests: Requests::read(answers.next().unwrap_or_default())?, ..Self::default() };
        for row in answers.next().unwrap_or_default() {
            let plan = PlanState::read(&mut Columns::from(row))?;
            known.plans.insert(plan.id.clone(), plan);
        }
        known.add_owners(answers.next().unwrap_or_default())?;
        known.add_busy(answers.next().unwrap_or_default())?;
        Ok(known)
    }

    pub(super) fn add_owners(&mut self, rows: Vec<Row>) -> Sql<()> {
        for row in rows {
            let mut columns = Columns::from(row);
            self.owners.insert(columns.task_id()?, columns.plan_id()?);
        }
        Ok(())
    }

    pub(super) fn add_busy(&mut self, rows: Vec<Row>) -> Sql<()> {
        for row in rows {
            let mut columns = Columns::from(row);
            self.busy.insert(columns.next()?, columns.next()?);
        }
        Ok(())
    }

    /// A task id that some plan in the store has already, or a busy tenant of a plan that refuses those. `own` is the
    /// plan's number, if it has one.
    pub(super) fn clash(&self, plan: &PlanDefinition, tasks: &[TaskDefinition], own: Option<i64>) -> Option<Clash> {
        let mut seen = HashSet::new();
        for task in tasks {
            let repeated = !seen.insert(&task.id);
            if let Some(owner) = self.owners.get(&task.id).or(repeated.then_some(&plan.id)) {
                return Some(Clash::TaskId { task: task.id.clone(), owner: owner.clone() });
            }
        }
        if !refuses(plan) {
            return None;
        }
        let is_busy = |tenant: &&str| self.busy.get(*tenant).is_some_and(|holder| Some(*holder) != own);
        let busy: Vec<String> = tenants(tasks).into_iter().filter(is_busy).map(ToOwned::to_owned).collect();
        (!busy.is_empty()).then(|| Clash::TenantsBusy { plan: plan.id.clone(), busy })
    }
}
