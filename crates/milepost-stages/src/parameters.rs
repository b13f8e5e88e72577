//! What all kinds ask of their `with:` before a plan is accepted.

use serde_json::{Map, Value};

/// The parameters as an object, or nothing when there are none; refused when there is a key that is not listed.
pub(crate) fn only_keys<'a>(
    kind: &str,
    with: &'a Value,
    allowed: &[&str],
) -> Result<Option<&'a Map<String, Value>>, String> {
    let object = match with {
        Value::Null => return Ok(None),
        Value::Object(object) => object,
        _ => return Err(format!("the parameters of `{kind}` must be an object")),
    };
    match object.keys().find(|key| !allowed.contains(&key.as_str())) {
        None => Ok(Some(object)),
        Some(unknown) => Err(format!("`{kind}` has no parameter `{unknown}`; it takes {}", list(allowed))),
    }
}

/// True for text that is not known before the stage runs, and so cannot be checked before that.
pub(crate) fn is_template(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("{{") || text.contains("{%"))
}

/// True if it is such a text, or has one anywhere in it.
pub(crate) fn holds_template(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_template),
        Value::Object(members) => members.values().any(holds_template),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => is_template(value),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
