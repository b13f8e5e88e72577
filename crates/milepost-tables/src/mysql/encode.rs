//! A cell as it is written: in a statement, or in a line of LOAD DATA.

use crate::batch::{Batch, Cell};

use super::sql;

/// As SQL.
pub(super) fn push_literal(sql: &mut Vec<u8>, batch: &Batch, cell: Cell) {
    match cell {
        Cell::Null => sql.extend_from_slice(b"NULL"),
        Cell::Bool(value) => sql.push(b'0' + u8::from(value)),
        Cell::Int(value) => sql::push_integer(sql, value),
        Cell::Uint(value) => sql::push_digits(sql, value),
        Cell::Float(value) => sql::push_float(sql, value),
        Cell::Text(span) => sql::push_quoted(sql, batch.bytes(span)),
        Cell::Bytes(span) => {
            sql.extend_from_slice(b"_binary");
            sql::push_quoted(sql, batch.bytes(span));
        }
    }
}

/// A row between brackets.
pub(super) fn push_row(sql: &mut Vec<u8>, batch: &Batch, row: usize) {
    let mut before = b'(';
    for cell in batch.row(row) {
        sql.push(before);
        push_literal(sql, batch, *cell);
        before = b',';
    }
    sql.push(b')');
}

/// A row as LOAD DATA takes it by default: tabs between, a line feed after, a backslash before what is neither.
pub(super) fn push_line(line: &mut Vec<u8>, batch: &Batch, row: usize) {
    for (column, cell) in batch.row(row).iter().enumerate() {
        if column > 0 {
            line.push(b'\t');
        }
        match *cell {
            Cell::Null => line.extend_from_slice(b"\\N"),
            Cell::Bool(value) => line.push(b'0' + u8::from(value)),
            Cell::Int(value) => sql::push_integer(line, value),
            Cell::Uint(value) => sql::push_digits(line, value),
            Cell::Float(value) => sql::push_float(line, value),
            Cell::Text(span) | Cell::Bytes(span) => sql::push_escaped(line, batch.bytes(span), |byte| match byte {
                b'\\' => Some(b'\\'),
                b'\t' => Some(b't'),
                b'\n' => Some(b'n'),
                0 => Some(b'0'),
                _ => None,
            }),
        }
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let mut batch = Batch::new(4);
        batch.push(Cell::Null);
        batch.push_text("a\tb\\N\n'");
        batch.push_bytes(&[0, 255, b'\'']);
        batch.push(Cell::Int(-7));
        batch
    }

    #[test]
    fn a_row_is_a_list_of_literals() {
        let mut sql = Vec::new();
        push_row(&mut sql, &batch(), 0);
        assert_eq!(sql, b"(NULL,'a\tb\\\\N\n\\'',_binary'\\0\xff\\'',-7)");
    }

    #[test]
    fn a_line_has_tabs_only_between_its_fields() {
        let mut line = Vec::new();
        push_line(&mut line, &batch(), 0);
        assert_eq!(line, b"\\N\ta\\tb\\\\N\\n'\t\\0\xff'\t-7\n");
    }
}
