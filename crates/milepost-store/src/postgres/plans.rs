//! Changes of a plan's own status.

use milepost_core::plan::next_plan_status;
use milepost_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::{PlanChange, PlanRow};

use super::books::BookColumns;
use super::claim::missing_plan;
use super::codec::plan_status;
use super::columns::{Rules, call};
use super::requests::KeptAnswer;
use super::store::Inner;

/// What the server says to a change of a plan.
pub(super) enum Answer {
    Changed,
    /// It is at this version, not at the expected one.
    OtherVersion(u64),
    /// It has this status, which refuses.
    Refused(i16),
    /// What it has for the books is there.
    Kept(StoreError),
}

/// What is to become of a plan, by the rules of a table.
pub(super) struct Asked<'a> {
    pub(super) plan: i64,
    pub(super) expected: Option<u64>,
    pub(super) rules: Option<Vec<i16>>,
    /// A person wants it to run.
    pub(super) lets_go: bool,
    /// Its version grows in any case.
    pub(super) counts: bool,
    pub(super) by: Option<String>,
    pub(super) at: Timestamp,
    pub(super) answer: Option<KeptAnswer<'a>>,
    pub(super) books: BookColumns,
}

pub(super) async fn change(inner: &Inner, change: PlanChange) -> Result<PlanRow, StoreError> {
    let missing = || missing_plan(&change.plan);
    let plan = inner.plan_number(&change.plan).await?.ok_or_else(missing)?;
    let by = serde_json::to_string(&change.by).expect("two strings are JSON");
    let asked = Asked {
        plan,
        expected: change.expected,
        rules: Some(Rules::of(change.command)),
        lets_go: change.command.lets_go(),
        counts: change.command.always_counts(),
        by: Some(by),
        at: change.now,
        answer: None,
        books: BookColumns::default(),
    };
    match ask(inner, asked).await? {
        Answer::Changed => inner.plan(&change.plan).await?.ok_or_else(missing),
        Answer::OtherVersion(found) => {
            let expected = change.expected.unwrap_or(found);
            Err(StoreError::PlanConflict { plan: change.plan, expected, found })
        }
        Answer::Refused(status) => {
            let row = inner.plan(&change.plan).await?.ok_or_else(missing)?;
            let said = next_plan_status(change.plan.as_str(), plan_status(status)?, &row.counts, change.command);
            said.map(|_| row).map_err(StoreError::from)
        }
        Answer::Kept(error) => Err(error),
    }
}

pub(super) async fn ask(inner: &Inner, asked: Asked<'_>) -> Result<Answer, StoreError> {
    let own = inner.session.number();
    let (expected, at) = (asked.expected.map(|version| version as i64), asked.at.as_millis());
    let answer = asked.answer.as_ref();
    let (key, digest) = (answer.map(|kept| kept.key), answer.map(|kept| kept.digest));
    let text = answer.map(|kept| kept.text.as_str());
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
        (&own, Type::INT8),
        (&asked.plan, Type::INT8),
        (&expected, Type::INT8),
        (&asked.rules, Type::INT2_ARRAY),
        (&asked.lets_go, Type::BOOL),
        (&asked.counts, Type::BOOL),
        (&asked.by, Type::TEXT),
        (&at, Type::INT8),
        (&key, Type::TEXT),
        (&digest, Type::BYTEA),
        (&text, Type::TEXT),
    ];
    parameters.extend(asked.books.parameters());
    let row = inner.server.write("change a plan", &call("change_plan", &parameters), &parameters).await?.remove(0);
    inner.stats.count(1, 0);
    Ok(match row.get::<_, i32>("verdict") {
        0 => Answer::Changed,
        2 => Answer::OtherVersion(row.get::<_, i64>("version").unsigned_abs()),
        5 => Answer::Kept(asked.books.refusal(1, &row).unwrap_or_else(|| damaged("a verdict", "nothing explains it"))),
        _ => Answer::Refused(row.get("status")),
    })
}
