//! Rows as COPY spells them, taken apart into cells of the kinds that were asked for.

use serde_json::{Map, Value as Json};

use crate::batch::{Batch, Cell, Spoilt, Value};
use crate::table::Kind;

use super::types::Native;
use super::way::Way;

const NULL: &str = "\\N";

/// Takes rows of one scan apart.
#[derive(Debug)]
pub(super) struct Parser {
    names: Vec<String>,
    ways: Vec<Way>,
    /// What was escaped, and bytes that were hexadecimal.
    unescaped: String,
    scratch: Vec<u8>,
}

impl Parser {
    pub(super) fn new(columns: &[(String, Kind)], natives: &[&Native]) -> Self {
        let ways = columns.iter().zip(natives).map(|((_, kind), native)| Way::new(kind, native)).collect();
        let names = columns.iter().map(|(name, _)| name.clone()).collect();
        Self { names, ways, unescaped: String::new(), scratch: Vec::new() }
    }

    /// One row, with the newline at its end, into the batch: as cells, or as spoilt.
    pub(super) fn row(&mut self, line: &[u8], batch: &mut Batch) {
        let Ok(row) = std::str::from_utf8(line) else {
            let reason = "the row holds text that is no UTF-8".to_owned();
            batch.spoilt.push(Spoilt { row: shown(&self.names, &String::from_utf8_lossy(line)), reason });
            return;
        };
        let row = row.strip_suffix('\n').unwrap_or(row);
        if self.ways.is_empty() {
            return;
        }
        for (position, (way, field)) in self.ways.iter().zip(row.split('\t')).enumerate() {
            if field == NULL {
                batch.push(Cell::Null);
                continue;
            }
            let text = if field.contains('\\') {
                self.unescaped.clear();
                unescape(field, &mut self.unescaped);
                self.unescaped.as_str()
            } else {
                field
            };
            if let Err(what) = way.push(batch, text, &mut self.scratch) {
                batch.drop_unfinished_row();
                let cut: String = text.chars().take(200).collect();
                let reason = format!("column \"{}\" holds {cut:?}, which is no {what}", self.names[position]);
                batch.spoilt.push(Spoilt { row: shown(&self.names, row), reason });
                return;
            }
        }
    }

    /// Some of a row's values, whatever the others are. What is not what it should be stays a text, by which the database
    /// finds its place as well.
    pub(super) fn values(&mut self, line: &[u8], positions: &[usize]) -> Vec<Value> {
        let fields = fields(line);
        let value = |position: &usize| {
            let Some(text) = &fields[*position] else { return Value::Null };
            let mut batch = Batch::new(1);
            match self.ways[*position].push(&mut batch, text, &mut self.scratch) {
                Ok(()) => batch.value(batch.row(0)[0]),
                Err(_) => Value::Text(text.clone()),
            }
        };
        positions.iter().map(value).collect()
    }
}

/// The fields of one row, as the server spells them; None is NULL.
pub(super) fn fields(line: &[u8]) -> Vec<Option<String>> {
    let row = String::from_utf8_lossy(line);
    row.strip_suffix('\n').unwrap_or(&row).split('\t').map(field).collect()
}

fn field(field: &str) -> Option<String> {
    let mut text = String::new();
    unescape(field, &mut text);
    (field != NULL).then_some(text)
}

fn shown(names: &[String], row: &str) -> Map<String, Json> {
    let values =
        row.strip_suffix('\n').unwrap_or(row).split('\t').map(|text| field(text).map_or(Json::Null, Json::String));
    names.iter().cloned().zip(values).collect()
}

fn unescape(mut field: &str, into: &mut String) {
    while let Some(at) = field.find('\\') {
        into.push_str(&field[..at]);
        let mut rest = field[at + 1..].chars();
        match rest.next() {
            Some('b') => into.push('\u{8}'),
            Some('f') => into.push('\u{c}'),
            Some('n') => into.push('\n'),
            Some('r') => into.push('\r'),
            Some('t') => into.push('\t'),
            Some('v') => into.push('\u{b}'),
            Some(other) => into.push(other),
            None => {}
        }
        field = rest.as_str();
    }
    into.push_str(field);
}
