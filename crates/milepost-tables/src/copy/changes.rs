//! What became of a source while it was copied, in words.

use crate::table::{Column, Table};

/// Of what is copied alone: `columns` are those that were asked for by name, None if all were.
pub(super) fn changes(before: &Table, now: Option<&Table>, columns: Option<&[String]>) -> Vec<String> {
    let Some(now) = now else { return vec!["the table is gone".to_owned()] };
    let asked = |column: &&Column| columns.is_none_or(|names| names.contains(&column.name));
    let find = |table: &'_ Table, name: &str| table.columns.iter().find(|column| column.name == name).cloned();
    let mut changes = Vec::new();
    for column in before.columns.iter().filter(asked) {
        match find(now, &column.name) {
            None => changes.push(format!("the column `{}` is gone", column.name)),
            Some(found) if found.native != column.native || found.kind != column.kind => {
                changes.push(format!("the column `{}` was {} and is {}", column.name, column.native, found.native));
            }
            Some(found) if found.nullable != column.nullable => {
                let is = if found.nullable { "may be NULL now" } else { "may not be NULL any more" };
                changes.push(format!("the column `{}` {is}", column.name));
            }
            Some(_) => {}
        }
    }
    for column in now.columns.iter().filter(asked) {
        if find(before, &column.name).is_none() {
            changes.push(format!("the column `{}` is new", column.name));
        }
    }
    let primary = |table: &Table| -> Vec<String> {
        table.primary.iter().map(|column| table.columns[*column].name.clone()).collect()
    };
    if primary(before) != primary(now) {
        let shown = |key: Vec<String>| if key.is_empty() { "nothing".to_owned() } else { key.join(", ") };
        changes.push(format!("the primary key was {} and is {}", shown(primary(before)), shown(primary(now))));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::super::testing::{column, table};
    use super::*;
    use crate::table::Kind;

    #[test]
    fn a_change_of_what_is_copied_is_named_and_others_do_not_matter() {
        let before = table("t", vec![column("a", Kind::Date), column("b", Kind::Uuid), column("c", Kind::Json)]);
        assert_eq!(changes(&before, Some(&before.clone()), None), Vec::<String>::new());
        assert_eq!(changes(&before, None, None), ["the table is gone"]);

        let mut now = table("t", vec![column("a", Kind::Json), column("c", Kind::Json), column("d", Kind::Bool)]);
        now.columns[1].nullable = false;
        now.primary = vec![1];
        let all = changes(&before, Some(&now), None);
        let words = ["`a` was", "`b` is gone", "`c` may not be NULL", "`d` is new", "primary key was nothing and is c"];
        assert_eq!(all.len(), words.len(), "{all:?}");
        for (change, word) in all.iter().zip(words) {
            assert!(change.contains(word), "{change}");
        }
        now.primary.clear();
        assert_eq!(changes(&before, Some(&now), Some(&["c".to_owned()])), ["the column `c` may not be NULL any more"]);
    }
}
