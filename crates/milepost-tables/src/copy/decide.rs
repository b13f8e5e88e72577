//! What becomes of a target that is there.
//!
//! | `if_exists` | nothing there | this run's own, done | another table |
//! |---|---|---|---|
//! | `fail` | new table | replaced | refused |
//! | `drop` | new table | replaced | replaced |
//! | `truncate` | new table | its rows are replaced | its rows are replaced |
//! | `append` | new table | nothing is done | rows are added |
//! | `upsert` | new table | rows are merged by its primary key | rows are merged by its primary key |

use super::fit;
use super::job::IfExists;
use crate::database::{How, Mark, MarkState};
use crate::error::TableError;
use crate::table::{Table, TableName};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A new table takes the target's name.
    New,
    /// The target stays, and rows get into it.
    Into(How),
    /// An earlier attempt has done it.
    Already,
}

/// `mark`: of this run of the copy.
pub(super) fn decide(
    if_exists: IfExists,
    into: &TableName,
    target: Option<&Table>,
    mark: Option<&Mark>,
    copied: &Table,
) -> Result<Way, TableError> {
    let Some(target) = target else { return Ok(Way::New) };
    let own = mark.filter(|mark| mark.own && mark.into.name == into.name);
    let how = match if_exists {
        IfExists::Fail if own.is_some() => return Ok(Way::New),
        IfExists::Fail => {
            return Err(TableError::Refused(format!(
                "the target has a table `{into}` already, and this run of the copy has not made it; `if_exists: drop` replaces it, \
                 `truncate` replaces its rows, `append` and `upsert` add to them, and `into` names another table"
            )));
        }
        IfExists::Drop => return Ok(Way::New),
        IfExists::Append if own.is_some_and(|mark| mark.state == MarkState::Done) => return Ok(Way::Already),
        IfExists::Append => How::Append,
        IfExists::Truncate => How::Truncate,
        IfExists::Upsert => {
            How::Upsert { key: target.primary.iter().map(|column| target.columns[*column].name.clone()).collect() }
        }
    };
    let problems = fit::problems(target, copied, &how);
    if problems.is_empty() {
        return Ok(Way::Into(how));
    }
    Err(TableError::Refused(format!("`{}` does not fit into `{into}`: {}", copied.name, problems.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{column, table};
    use super::*;
    use crate::table::Kind;

    fn mark(state: MarkState, into: &str) -> Mark {
        let into = TableName::new(into);
        Mark {
            state,
            run: 1,
            own: state == MarkState::Done,
            into,
            rows: 1,
            rejected: 0,
            after: None,
            fingerprint: String::new(),
        }
    }

    fn decided(if_exists: IfExists, target: Option<&Table>, mark: Option<&Mark>) -> Result<Way, String> {
        let source = table("s", vec![column("id", Kind::Int { bits: 64, unsigned: false })]);
        decide(if_exists, &TableName::new("t"), target, mark, &source).map_err(|error| error.to_string())
    }

    #[test]
    fn into_nothing_goes_a_new_table_whatever_was_asked() {
        use IfExists::{Append, Drop, Fail, Truncate, Upsert};
        for if_exists in [Fail, Drop, Truncate, Append, Upsert] {
            for mark in [None, Some(mark(MarkState::Done, "t")), Some(mark(MarkState::Loading, "t"))] {
                assert_eq!(decided(if_exists, None, mark.as_ref()), Ok(Way::New));
            }
        }
    }

    #[test]
    fn a_table_counts_as_own_only_if_this_copy_has_finished_that_very_one() {
        let there = table("t", vec![column("id", Kind::Int { bits: 64, unsigned: false })]);
        for mark in [None, Some(mark(MarkState::Loading, "t")), Some(mark(MarkState::Done, "other"))] {
            let reason = decided(IfExists::Fail, Some(&there), mark.as_ref()).unwrap_err();
            assert!(reason.contains("`t`") && reason.contains("if_exists"), "{reason}");
            assert_eq!(decided(IfExists::Append, Some(&there), mark.as_ref()), Ok(Way::Into(How::Append)));
        }
        let done = mark(MarkState::Done, "t");
        assert_eq!(decided(IfExists::Fail, Some(&there), Some(&done)), Ok(Way::New));
        assert_eq!(decided(IfExists::Append, Some(&there), Some(&done)), Ok(Way::Already));
        let again = Mark { own: true, ..mark(MarkState::Loading, "t") };
        assert_eq!(decided(IfExists::Fail, Some(&there), Some(&again)), Ok(Way::New));
        assert_eq!(decided(IfExists::Drop, Some(&there), None), Ok(Way::New));
        assert_eq!(decided(IfExists::Truncate, Some(&there), Some(&done)), Ok(Way::Into(How::Truncate)));
    }

    #[test]
    fn rows_are_merged_by_the_primary_key_of_the_target() {
        let mut there = table("t", vec![column("id", Kind::Int { bits: 64, unsigned: false })]);
        let reason = decided(IfExists::Upsert, Some(&there), None).unwrap_err();
        assert!(reason.contains("primary key"), "{reason}");
        there.primary = vec![0];
        let way = Way::Into(How::Upsert { key: vec!["id".into()] });
        assert_eq!(decided(IfExists::Upsert, Some(&there), None), Ok(way));
    }
}
