//! How far a scan is: the key of the last row, as the file has it. Only in its own spelling is the same place found again.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::batch::Value;

/// Keeps its memory from row to row.
#[derive(Debug, Default)]
pub(super) struct LastKey {
    values: Vec<Value>,
    /// NULL is behind nothing, and what is not UTF-8 cannot be written down.
    unknown: bool,
}

impl LastKey {
    pub(super) fn is_of(&mut self, row: &Row<'_>, key: &[usize]) {
        self.values.resize(key.len(), Value::Null);
        self.unknown = key.is_empty();
        for (value, place) in self.values.iter_mut().zip(key) {
            match row.get_ref_unwrap(*place) {
                ValueRef::Null => self.unknown = true,
                ValueRef::Integer(number) => *value = Value::Int(number),
                ValueRef::Real(number) => *value = Value::Float(number),
                ValueRef::Text(bytes) => match (std::str::from_utf8(bytes), value) {
                    (Ok(text), Value::Text(kept)) => {
                        kept.clear();
                        kept.push_str(text);
                    }
                    (Ok(text), value) => *value = Value::Text(text.to_owned()),
                    (Err(_), _) => self.unknown = true,
                },
                ValueRef::Blob(bytes) => match value {
                    Value::Bytes(kept) => {
                        kept.clear();
                        kept.extend_from_slice(bytes);
                    }
                    value => *value = Value::Bytes(bytes.to_vec()),
                },
            }
        }
    }

    pub(super) fn get(&self) -> Option<Vec<Value>> {
        (!self.unknown).then(|| self.values.clone())
    }
}
