//! `uses: file.checksum`: the SHA-256 checksum of the task's file, recorded or compared.

use std::path::Path;

use async_trait::async_trait;
use futures::StreamExt;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::disk;
use super::save::hexadecimal;
use crate::parameters::{is_template, only_keys};

/// `expected: HEX` verifies, and a mismatch is final; without it the output `checksum` says what it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChecksumKind;

#[async_trait]
impl StageKind for ChecksumKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        let with = only_keys("file.checksum", with, &["algorithm", "expected"])?;
        let get = |key: &str| with.and_then(|with| with.get(key)).filter(|value| !value.is_null());
        match get("algorithm") {
            None => {}
            Some(Value::String(algorithm)) if algorithm == "sha256" => {}
            Some(_) => return Err("`algorithm` can only be sha256".to_owned()),
        }
        match get("expected") {
            Some(expected) if !is_template(expected) => checksum(expected).map(|_| ()),
            Some(_) | None => Ok(()),
        }
    }

    async fn run(&self, call: StageCall) -> Outcome {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Outcome::Failure(Failure::retryable(ErrorType::Timeout, "cancelled")),
            outcome = compare(&call) => outcome.unwrap_or_else(Outcome::Failure),
        }
    }
}

async fn compare(call: &StageCall) -> Result<Outcome, Failure> {
    let expected = match call.with.get("expected") {
        None | Some(Value::Null) => None,
        Some(value) => Some(checksum(value).map_err(|reason| Failure::fatal(ErrorType::Validation, reason))?),
    };
    let Some(path) = call.file_path().await? else { return Ok(no_file()) };
    let found = digest(&path).await?;
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let reason = format!("the file's SHA-256 checksum is {found} and should be {expected}");
        return Err(Failure::fatal(ErrorType::Business, reason));
    }
    let outputs = Map::from_iter([("algorithm".to_owned(), json!("sha256")), ("checksum".to_owned(), json!(found))]);
    Ok(Outcome::Success { outputs })
}

async fn digest(path: &Path) -> Result<String, Failure> {
    let (_, mut pieces) = disk::read(path).await?;
    let mut digest = Sha256::new();
    while let Some(piece) = pieces.next().await {
        digest.update(&piece?);
    }
    Ok(hexadecimal(&digest.finalize()))
}

fn checksum(value: &Value) -> Result<String, String> {
    match value.as_str().map(|text| text.trim().to_ascii_lowercase()) {
        Some(text) if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(text),
        _ => Err("`expected` must be a checksum of 64 hexadecimal digits".to_owned()),
    }
}

pub(super) fn no_file() -> Outcome {
    Outcome::Failure(Failure::fatal(ErrorType::Validation, "the task has no `file` to work on"))
}
