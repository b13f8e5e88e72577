//! Whether a table that is there can take the copied columns.
//!
//! What a database refuses by itself, value by value, is left to it: a text that is too long, a number that is too large.
//! What it would round or reword in silence is a problem of the whole column.

use crate::database::How;
use crate::table::{Column, Kind, Table};

/// Everything that stands in the way, in words.
pub(super) fn problems(target: &Table, copied: &Table, how: &How) -> Vec<String> {
    let mut problems: Vec<String> = copied.columns.iter().filter_map(|column| problem_with(target, column)).collect();
    let is_copied = |name: &str| copied.columns.iter().any(|column| column.name == name);
    for column in target.columns.iter().filter(|column| !is_copied(&column.name)) {
        if !column.nullable && !column.counts_up && !column.generated && !column.default {
            problems.push(format!("its column `{}` needs a value, and none is copied", column.name));
        }
    }
    if let How::Upsert { key } = how {
        if key.is_empty() {
            problems.push("it has no primary key to merge rows by".to_owned());
        }
        for name in key.iter().filter(|name| !is_copied(name)) {
            problems.push(format!("`{name}` is part of its primary key, and is not copied"));
        }
    }
    problems
}

fn problem_with(target: &Table, column: &Column) -> Option<String> {
    let name = &column.name;
    let Some(there) = target.columns.iter().find(|there| there.name == *name) else {
        return Some(format!("it has no column `{name}`"));
    };
    if there.generated {
        return Some(format!("its column `{name}` is computed, and cannot be written; leave it out with `columns`"));
    }
    (!holds(there, column)).then(|| {
        let (is, comes) = (&there.kind, &column.kind);
        format!("its column `{name}` is {is}, and {comes} does not fit into that unchanged; `types` can say what to read it as")
    })
}

fn holds(there: &Column, column: &Column) -> bool {
    match (&there.kind, &column.kind) {
        (Kind::Bool, Kind::Bool)
        | (Kind::Int { .. }, Kind::Int { .. } | Kind::Bool)
        | (Kind::Decimal { .. }, Kind::Int { .. })
        | (Kind::Bytes { .. }, Kind::Bytes { .. })
        | (Kind::Date, Kind::Date)
        | (Kind::Json, Kind::Json)
        | (Kind::Uuid, Kind::Uuid) => true,
        (Kind::Float { bits }, Kind::Float { bits: from }) => bits >= from,
        // All of these are numbers that a float of that size has.
        (Kind::Float { bits }, Kind::Int { bits: from, .. }) => *from <= if *bits == 64 { 32 } else { 16 },
        (Kind::Decimal { digits: None }, Kind::Decimal { .. }) => true,
        (Kind::Decimal { digits: Some(to) }, Kind::Decimal { digits: Some(from) }) => to.scale >= from.scale,
        (Kind::Time { fraction }, Kind::Time { fraction: from })
        | (Kind::DateTime { fraction }, Kind::DateTime { fraction: from })
        | (Kind::Instant { fraction }, Kind::Instant { fraction: from }) => fraction >= from,
        (Kind::Enum { values }, Kind::Enum { values: from }) => from.iter().all(|value| values.contains(value)),
        (Kind::Text { .. }, kind) => is_spelled(kind),
        (Kind::Other, Kind::Other) => there.native == column.native,
        _ => false,
    }
}

/// Its cells are texts: any text column takes them as they are.
fn is_spelled(kind: &Kind) -> bool {
    match kind {
        Kind::Bool | Kind::Int { .. } | Kind::Float { .. } | Kind::Bytes { .. } => false,
        Kind::Decimal { .. }
        | Kind::Text { .. }
        | Kind::Date
        | Kind::Time { .. }
        | Kind::DateTime { .. }
        | Kind::Instant { .. }
        | Kind::Json
        | Kind::Uuid
        | Kind::Enum { .. }
        | Kind::Other => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{column, table};
    use super::*;

    fn kind(text: &str) -> Kind {
        text.parse().unwrap()
    }

    #[test]
    fn what_would_be_rounded_or_reworded_does_not_fit() {
        let fits = [
            ("int16", "int64"),
            ("decimal(9,2)", "decimal(12,2)"),
            ("decimal", "decimal(12,9)"),
            ("text(5)", "text"),
            ("text", "instant"),
            ("datetime(6)", "datetime(3)"),
            ("float64", "int32"),
            ("decimal(5,0)", "uint64"),
        ];
        let not = [
            ("decimal(9,1)", "decimal(9,2)"),
            ("decimal(9,1)", "decimal"),
            ("float64", "int64"),
            ("float32", "float64"),
            ("datetime(0)", "datetime(3)"),
            ("datetime", "instant"),
            ("uuid", "text"),
            ("int64", "text"),
            ("text", "bytes"),
            ("bool", "int8"),
        ];
        for (to, from) in fits {
            assert!(holds(&column("a", kind(to)), &column("a", kind(from))), "{from} into {to}");
        }
        for (to, from) in not {
            assert!(!holds(&column("a", kind(to)), &column("a", kind(from))), "{from} into {to}");
        }
    }

    #[test]
    fn all_that_stands_in_the_way_is_said_at_once() {
        let needed = Column { nullable: false, ..column("needed", Kind::Date) };
        let filled = Column { default: true, ..Column { name: "filled".into(), ..needed.clone() } };
        let computed = Column { generated: true, ..column("sum", kind("int64")) };
        let target =
            table("t", vec![column("id", kind("int64")), computed, needed, filled, column("when", Kind::Date)]);
        let columns = vec![column("id", Kind::Uuid), column("sum", kind("int64")), column("new", Kind::Date)];
        let problems = problems(&target, &table("s", columns), &How::Append);
        let named = ["`id` is int64, and uuid", "`sum` is computed", "no column `new`", "`needed` needs a value"];
        assert_eq!(problems.len(), named.len(), "{problems:?}");
        for (problem, name) in problems.iter().zip(named) {
            assert!(problem.contains(name), "{problem}");
        }
    }
}
