//! Tables for the tests of this folder.

use crate::table::{Column, Kind, Table, TableName};

pub(super) fn column(name: &str, kind: Kind) -> Column {
    let native = kind.to_string();
    let name = name.to_owned();
    Column { name, kind, native, nullable: true, counts_up: false, generated: false, default: false }
}

pub(super) fn table(name: &str, columns: Vec<Column>) -> Table {
    let name = TableName::new(name);
    Table { name, columns, primary: Vec::new(), indexes: Vec::new(), rows: None, left_out: Vec::new() }
}
