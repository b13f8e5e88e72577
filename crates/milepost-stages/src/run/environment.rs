//! The variables a command finds: the only way values reach it.

use std::ffi::OsString;
use std::path::Path;

use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::StageCall;
use serde_json::{Map, Value};

use super::files::Files;
use super::guard::{Guarded, TOKEN_VARIABLE};
use crate::parameters::only_keys;

/// Set by us for every command, so `env:` cannot set them; other names that begin alike (`MILEPOST_STORE`) it may.
const OWN: [&str; 12] = [
    "MILEPOST_PLAN",
    "MILEPOST_TASK",
    "MILEPOST_TENANT",
    "MILEPOST_STAGE",
    "MILEPOST_ATTEMPT",
    "MILEPOST_INPUT",
    "MILEPOST_FILE",
    "MILEPOST_OUTPUT",
    "MILEPOST_PROGRESS",
    "MILEPOST_IDEMPOTENCY_KEY",
    "MILEPOST_FENCE",
    TOKEN_VARIABLE,
];

pub(super) fn variables(
    call: &StageCall,
    file: Option<&Path>,
    files: &Files,
    guarded: &Guarded,
) -> Result<Vec<(String, OsString)>, Failure> {
    let own: [OsString; 12] = [
        call.plan.as_str().into(),
        call.task.as_str().into(),
        call.tenant.as_ref().map_or("", |tenant| tenant.as_str()).into(),
        call.stage.as_str().into(),
        call.attempt.to_string().into(),
        call.input.to_string().into(),
        file.map(OsString::from).unwrap_or_default(),
        files.outputs().into(),
        files.progress().into(),
        call.idempotency_key().into(),
        call.fence.to_string().into(),
        guarded.token.as_str().into(),
    ];
    let mut variables: Vec<(String, OsString)> = OWN.into_iter().map(str::to_owned).zip(own).collect();
    for (name, value) in declared(&call.with).map_err(invalid)?.into_iter().flatten() {
        check_name(name).map_err(invalid)?;
        let text = text(name, value).map_err(invalid)?;
        if text.contains('\0') {
            return Err(invalid(format!("the value of `env.{name}` may not contain a zero byte")));
        }
        variables.push((name.clone(), text.into()));
    }
    Ok(variables)
}

pub(super) fn check(with: &Value) -> Result<(), String> {
    for (name, value) in declared(with)?.into_iter().flatten() {
        check_name(name)?;
        text(name, value)?;
    }
    Ok(())
}

fn declared(with: &Value) -> Result<Option<&Map<String, Value>>, String> {
    match only_keys("run", with, &["env"])?.and_then(|with| with.get("env")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(env)) => Ok(Some(env)),
        Some(_) => Err("`env` must be an object of names and values".to_owned()),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let shape = |(i, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || (i > 0 && c.is_ascii_digit());
    if name.is_empty() || !name.chars().enumerate().all(shape) {
        return Err(format!("{name:?} cannot be the name of a variable; letters, digits and `_` can, no digit first"));
    }
    if OWN.contains(&name) {
        return Err(format!("`{name}` is set by Milepost itself; `env` cannot set it"));
    }
    Ok(())
}

fn text(name: &str, value: &Value) -> Result<String, String> {
    match value {
        // YAML's `NAME:` with nothing after it.
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => Err(format!("`env.{name}` must be text, a number or a boolean")),
    }
}

fn invalid(reason: String) -> Failure {
    Failure::fatal(ErrorType::Validation, reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn env_holds_scalars_under_names_that_a_shell_can_read() {
        for good in
            [json!(null), json!({}), json!({"env": {"A_1": "x", "b": 1, "C": true, "D": null, "MILEPOST_STORE": ""}})]
        {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        for bad in [
            json!({"envs": {}}),
            json!({"env": []}),
            json!({"env": {"": "x"}}),
            json!({"env": {"1A": "x"}}),
            json!({"env": {"A-B": "x"}}),
            json!({"env": {"A=B": "x"}}),
            json!({"env": {"A": [1]}}),
            json!({"env": {"MILEPOST_TENANT": "x"}}),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }
}
