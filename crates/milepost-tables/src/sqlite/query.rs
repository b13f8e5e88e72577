//! A scan as a statement: in the order of the key, behind the last one that is known. A table without a key is read in the
//! order of its rows' numbers, which is that of the file.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql};

use super::catalogue::plain;
use super::connect::{Failure, quoted, refused};
use super::types::Affinity;
use super::value::Want;
use crate::batch::Value;
use crate::database::Scan;
use crate::table::Kind;

#[derive(Debug)]
pub(super) struct Query {
    pub(super) sql: String,
    /// For its question marks.
    pub(super) bounds: Vec<Value>,
}

/// A column of the key.
struct Part {
    name: String,
    /// Some of its integers are texts, because they are beyond SQLite's: by themselves those are in the order of texts.
    beyond: bool,
}

impl Query {
    pub(super) fn of(connection: &Connection, scan: &Scan, wants: &[Want]) -> Result<Self, Failure> {
        let table = quoted(plain(&scan.table)?);
        // With its table before it, a name that is missing is an error; alone, in double quotes, SQLite takes it for text.
        let name = |place: usize| format!("{table}.{}", quoted(&scan.columns[place].0));
        let columns: Vec<_> = (0..scan.columns.len()).map(name).collect();
        let parts = scan.key.iter().map(|place| part(connection, &table, name(*place), &wants[*place]));
        let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
        let key = parts.iter().map(Part::order).collect::<Vec<_>>().join(", ");
        let (mut conditions, mut bounds) = (Vec::new(), Vec::new());
        for (bound, sign) in [(&scan.after, ">"), (&scan.until, "<=")] {
            let Some(bound) = bound else { continue };
            if bound.len() != parts.len() || bound.is_empty() {
                let (has, given) = (parts.len(), bound.len());
                return Err(refused(format!("the key of `{}` has {has} columns, and not {given}", scan.table)));
            }
            let values: Vec<_> = parts.iter().zip(bound).flat_map(|(part, value)| part.values(value)).collect();
            conditions.push(format!("({key}) {sign} ({})", vec!["?"; values.len()].join(", ")));
            bounds.extend(values);
        }
        if let Some(filter) = &scan.filter {
            // On lines of its own, so that a comment at its end ends there.
            conditions.push(format!("(\n{filter}\n)"));
        }
        let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        let order = if key.is_empty() { String::new() } else { format!(" ORDER BY {key}") };
        Ok(Self { sql: format!("SELECT {} FROM {table}{filter}{order}", columns.join(", ")), bounds })
    }
}

fn part(connection: &Connection, table: &str, name: String, want: &Want) -> Result<Part, Failure> {
    let mixed = want.kind == Kind::Int { bits: 64, unsigned: true } && want.affinity == Affinity::Nothing;
    // Every text is behind every integer.
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE {name} >= '')");
    let beyond = mixed && connection.query_row(&sql, [], |row| row.get(0))?;
    Ok(Part { name, beyond })
}

impl Part {
    fn order(&self) -> String {
        let name = &self.name;
        if self.beyond { format!("iif(typeof({name}) = 'text', length({name}), 0), {name}") } else { name.clone() }
    }

    fn values(&self, value: &Value) -> Vec<Value> {
        let text = match value {
            Value::Uint(value) => value.to_string(),
            Value::Text(text) => text.clone(),
            other => return if self.beyond { vec![Value::Int(0), other.clone()] } else { vec![other.clone()] },
        };
        if self.beyond { vec![Value::Int(text.len() as i64), Value::Text(text)] } else { vec![Value::Text(text)] }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Bool(value) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*value))),
            Value::Int(value) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Value::Uint(value) => ToSqlOutput::Owned(rusqlite::types::Value::Text(value.to_string())),
            Value::Float(value) => ToSqlOutput::Borrowed(ValueRef::Real(*value)),
            Value::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Value::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
        })
    }
}
