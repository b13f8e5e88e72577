//! Names and values as SQL. Every value passes through here.

use crate::table::TableName;

pub(super) fn name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

pub(super) fn table(table: &TableName) -> String {
    match &table.schema {
        Some(schema) => format!("{}.{}", name(schema), name(&table.name)),
        None => name(&table.name),
    }
}

/// Names in a row, with commas between.
pub(super) fn names<'a>(list: impl IntoIterator<Item = &'a str>) -> String {
    list.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The schema of a table as an expression: `DATABASE()` is the one that the connection is in.
pub(super) fn schema(table: &TableName) -> String {
    table.schema.as_deref().map_or_else(|| "DATABASE()".to_owned(), text)
}

pub(super) fn text(text: &str) -> String {
    let mut sql = Vec::with_capacity(text.len() + 2);
    push_quoted(&mut sql, text.as_bytes());
    String::from_utf8(sql).expect("quotes around a text are text")
}

pub(super) fn text_or_null(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), text)
}

/// Between quotes. Sound because every session of ours speaks utf8mb4, in which no part of a longer character looks like
/// one of these, and takes backslashes as escapes.
pub(super) fn push_quoted(sql: &mut Vec<u8>, bytes: &[u8]) {
    sql.push(b'\'');
    push_escaped(sql, bytes, |byte| match byte {
        b'\'' => Some(b'\''),
        b'\\' => Some(b'\\'),
        0 => Some(b'0'),
        _ => None,
    });
    sql.push(b'\'');
}

/// `escape` says what stands after the backslash for a byte that needs one.
pub(super) fn push_escaped(sql: &mut Vec<u8>, bytes: &[u8], escape: impl Fn(u8) -> Option<u8>) {
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if let Some(escaped) = escape(*byte) {
            sql.extend_from_slice(&bytes[plain..at]);
            sql.extend_from_slice(&[b'\\', escaped]);
            plain = at + 1;
        }
    }
    sql.extend_from_slice(&bytes[plain..]);
}

pub(super) fn push_integer(sql: &mut Vec<u8>, value: i64) {
    if value < 0 {
        sql.push(b'-');
    }
    push_digits(sql, value.unsigned_abs());
}

pub(super) fn push_digits(sql: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    sql.extend_from_slice(&digits[at..]);
}

/// The shortest spelling that is read back as the same number.
pub(super) fn push_float(sql: &mut Vec<u8>, value: f64) {
    use std::io::Write;
    write!(sql, "{value:e}").expect("a list of bytes takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut sql = Vec::new();
        push(&mut sql);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn no_text_ends_its_literal_early() {
        assert_eq!(text(r"it's \' a\"), r"'it\'s \\\' a\\'");
        assert_eq!(text("null\0byte é"), "'null\\0byte é'");
        assert_eq!(name("a`b"), "`a``b`");
    }

    #[test]
    fn numbers_are_spelled_whole() {
        assert_eq!(written(|sql| push_integer(sql, i64::MIN)), "-9223372036854775808");
        assert_eq!(written(|sql| push_integer(sql, 0)), "0");
        assert_eq!(written(|sql| push_digits(sql, u64::MAX)), "18446744073709551615");
        assert_eq!(written(|sql| push_float(sql, -1.5e-300)), "-1.5e-300");
    }
}
