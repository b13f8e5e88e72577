//! Statements as text, because only as text can many of them go in one round trip. Every value passes through here.

use std::fmt::Write;

use memchr::{memchr3, memchr3_iter};

/// The store's clock, in milliseconds; every session of ours has its time zone at UTC.
macro_rules! now {
    () => {
        "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
    };
}
pub(super) use now;

pub(super) const NOW: &str = now!();

/// How much is sent in one go, as far as it can be cut.
pub(super) const PACKET: usize = 2 << 20;
/// The smallest `max_allowed_packet` of a server that will do: it refuses packets above that.
pub(super) const SMALLEST_LIMIT: usize = 2 * PACKET;

/// Bytes that one value may have if the server takes packets of so many: others may lie in the same statement, up to
/// half a packet of ours.
pub(super) fn longest_value(max_allowed_packet: usize) -> usize {
    max_allowed_packet.saturating_sub(PACKET / 2 + (64 << 10))
}

/// A string literal. Sound because every session of ours speaks utf8mb4 and takes backslashes as escapes.
pub(super) fn push_text(sql: &mut String, text: &str) {
    sql.push('\'');
    let mut rest = text;
    while let Some(at) = memchr3(b'\'', b'\\', 0, rest.as_bytes()) {
        sql.push_str(&rest[..at]);
        sql.push('\\');
        sql.push(if rest.as_bytes()[at] == 0 { '0' } else { char::from(rest.as_bytes()[at]) });
        rest = &rest[at + 1..];
    }
    sql.push_str(rest);
    sql.push('\'');
}

/// How long that literal is.
pub(super) fn text_length(text: &str) -> usize {
    text.len() + memchr3_iter(b'\'', b'\\', 0, text.as_bytes()).count() + 2
}

pub(super) fn text(text: &str) -> String {
    let mut sql = String::with_capacity(text.len() + 2);
    push_text(&mut sql, text);
    sql
}

pub(super) fn text_or_null(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), text)
}

pub(super) fn number_or_null(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

pub(super) fn bytes(bytes: &[u8]) -> String {
    let mut sql = String::with_capacity(bytes.len() * 2 + 3);
    sql.push_str("x'");
    for byte in bytes {
        write!(sql, "{byte:02x}").expect("a string takes all that is written to it");
    }
    sql.push('\'');
    sql
}

/// What stands between the brackets of `IN (…)`; of nothing, what no row is like.
pub(super) fn numbers(items: impl IntoIterator<Item = i64>) -> String {
    join(items, |sql, item| write!(sql, "{item}").expect("a string takes all that is written to it"))
}

pub(super) fn texts<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    join(items, push_text)
}

fn join<T>(items: impl IntoIterator<Item = T>, push: impl Fn(&mut String, T)) -> String {
    let mut sql = String::new();
    for item in items {
        if !sql.is_empty() {
            sql.push(',');
        }
        push(&mut sql, item);
    }
    if sql.is_empty() { "NULL".to_owned() } else { sql }
}

/// One statement of many rows, cut into several where it would grow too long; a large row has one of its own.
#[derive(Debug)]
pub(super) struct Rows {
    head: &'static str,
    tail: &'static str,
    statements: Vec<String>,
}

impl Rows {
    pub(super) fn new(head: &'static str, tail: &'static str) -> Self {
        Self { head, tail, statements: Vec::new() }
    }

    /// `row` writes what stands between the brackets.
    pub(super) fn push(&mut self, row: impl FnOnce(&mut String)) {
        let rest = match self.statements.last_mut() {
            Some(statement) if statement.len() < PACKET / 2 => statement,
            _ => self.statements.push_mut(self.head.to_owned()),
        };
        let before = rest.len();
        rest.push_str(if before == self.head.len() { "(" } else { ",(" });
        row(rest);
        rest.push(')');
        if before > self.head.len() && rest.len() > PACKET {
            let alone = format!("{}{}", self.head, &rest[before + 1..]);
            rest.truncate(before);
            self.statements.push(alone);
        }
    }

    pub(super) fn statements(self) -> impl Iterator<Item = String> {
        let tail = self.tail;
        self.statements.into_iter().map(move |statement| statement + tail)
    }
}

/// Rows for `JSON_TABLE`, which both servers join to a table far faster than they run a statement for each.
#[derive(Debug, Default)]
pub(super) struct JsonRows {
    text: String,
    pub(super) count: usize,
}

impl JsonRows {
    pub(super) fn row(&mut self) -> JsonRow<'_> {
        self.text.push(if self.count == 0 { '[' } else { ',' });
        self.text.push('[');
        self.count += 1;
        JsonRow { text: &mut self.text, first: true }
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= PACKET / 2
    }

    /// `JSON_TABLE(…, '$[*]' COLUMNS (…))`: each column is its name and its type.
    pub(super) fn table(mut self, columns: &[(&str, &str)]) -> String {
        self.text.push(']');
        let mut sql = "JSON_TABLE(".to_owned();
        push_text(&mut sql, &self.text);
        sql.push_str(", '$[*]' COLUMNS (");
        for (index, (name, kind)) in columns.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(sql, "{comma}{name} {kind} PATH '$[{index}]'").expect("a string takes all that is written to it");
        }
        sql.push_str("))");
        sql
    }
}

#[derive(Debug)]
pub(super) struct JsonRow<'a> {
    text: &'a mut String,
    first: bool,
}

impl JsonRow<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.text.push(',');
        }
    }

    pub(super) fn number(&mut self, value: i64) -> &mut Self {
        self.maybe_number(Some(value))
    }

    pub(super) fn maybe_number(&mut self, value: Option<i64>) -> &mut Self {
        self.next();
        match value {
            Some(value) => write!(self.text, "{value}").expect("a string takes all that is written to it"),
            None => self.text.push_str("null"),
        }
        self
    }

    pub(super) fn maybe_text(&mut self, value: Option<&str>) -> &mut Self {
        self.next();
        self.text.push_str(&serde_json::to_string(&value).expect("a string is JSON"));
        self
    }
}

impl Drop for JsonRow<'_> {
    fn drop(&mut self) {
        self.text.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::{numbers, text, text_length};

    #[test]
    fn no_text_ends_its_literal_early() {
        assert_eq!(text(r"it's \' a\"), r"'it\'s \\\' a\\'");
        assert_eq!(text("null\0byte é"), "'null\\0byte é'");
    }

    #[test]
    fn the_length_of_a_literal_is_known_before_it_is_made() {
        for value in ["", "plain", r"it's \' a\", "null\0byte é"] {
            assert_eq!(text_length(value), text(value).len());
        }
    }

    #[test]
    fn a_list_of_nothing_is_still_a_list() {
        assert_eq!(numbers([]), "NULL");
        assert_eq!(numbers([1, -2]), "1,-2");
    }
}
