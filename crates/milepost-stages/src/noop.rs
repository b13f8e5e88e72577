//! `uses: noop`: succeeds at once, with the outputs it was given.

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::Value;

use crate::parameters::{is_template, only_keys};

#[derive(Debug, Clone, Copy, Default)]
pub struct NoopKind;

#[async_trait]
impl StageKind for NoopKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        match only_keys("noop", with, &["outputs"])?.and_then(|with| with.get("outputs")) {
            None | Some(Value::Object(_) | Value::Null) => Ok(()),
            Some(outputs) if is_template(outputs) => Ok(()),
            Some(_) => Err("`outputs` must be an object".to_owned()),
        }
    }

    async fn run(&self, mut call: StageCall) -> Outcome {
        match call.with.get_mut("outputs").map(Value::take) {
            None | Some(Value::Null) => Outcome::success(),
            Some(Value::Object(outputs)) => Outcome::Success { outputs },
            Some(_) => Outcome::Failure(Failure::fatal(ErrorType::Validation, "`outputs` must be an object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn noop_takes_outputs_and_nothing_else() {
        for good in [json!(null), json!({}), json!({"outputs": {"a": 1}}), json!({"outputs": "{{ input }}"})] {
            assert_eq!(NoopKind.check(&good), Ok(()), "{good}");
        }
        for bad in [json!("x"), json!({"output": {}}), json!({"outputs": [1]}), json!({"fail_attempts": 1})] {
            assert!(NoopKind.check(&bad).is_err(), "{bad}");
        }
    }
}
