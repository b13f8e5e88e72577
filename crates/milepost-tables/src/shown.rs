//! Rows as people see them: in a file of what was rejected, and in the words of an error.

use serde_json::{Map, Value as Json, json};

use crate::batch::{Batch, Cell};
use crate::database::Rejected;
use crate::table::Kind;

/// Longer values are cut off: a person has to find the row, not to restore it.
const LONGEST: usize = 10_000;

/// A row of a batch that cannot be written, with all that is known of it.
pub(crate) fn rejected(
    columns: &[(String, Kind)],
    batch: &Batch,
    row: usize,
    column: Option<usize>,
    reason: String,
) -> Rejected {
    let column = column.map(|column| columns[column].0.clone());
    let names = columns.iter().map(|(name, _)| name.clone());
    let values = names.zip(batch.row(row).iter().map(|cell| shown(batch, *cell))).collect::<Map<_, _>>();
    Rejected { row, column, reason, values }
}

/// A cell as JSON; bytes as `\x…`.
pub(crate) fn shown(batch: &Batch, cell: Cell) -> Json {
    match cell {
        Cell::Null => Json::Null,
        Cell::Bool(value) => json!(value),
        Cell::Int(value) => json!(value),
        Cell::Uint(value) => json!(value),
        Cell::Float(value) if value.is_finite() => json!(value),
        Cell::Float(value) => json!(value.to_string()),
        Cell::Text(span) => json!(batch.text(span).chars().take(LONGEST).collect::<String>()),
        Cell::Bytes(span) => json!(hex(&batch.bytes(span)[..batch.bytes(span).len().min(LONGEST)])),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::from("\\x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
