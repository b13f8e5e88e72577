//! What an answer means: its status first, then, if it is a good one, what it says.

use std::time::{Duration, SystemTime};

use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::Outcome;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::retry_after::retry_after;
use super::wording::{Wording, redirect_target};

/// The limit of a stage's result.
const LIMIT_BYTES: usize = 1024 * 1024;
/// Of a bad answer only a sentence is wanted, and not at any price.
const DETAIL_BYTES: usize = 64 * 1024;
const DETAIL_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn judge(response: Response, expected: Option<&[u16]>, wording: &Wording, now: SystemTime) -> Outcome {
    let status = response.status();
    let good = expected.map_or(status.is_success(), |expected| expected.contains(&status.as_u16()));
    let wait = retry_after(response.headers(), now);
    let mut outcome = if good {
        accepted(response, wording).await
    } else {
        Outcome::Failure(rejected(response, expected, wording).await)
    };
    if let Outcome::Failure(failure) = &mut outcome
        && failure.retryable
    {
        failure.retry_after = wait;
    }
    outcome
}

async fn accepted(response: Response, wording: &Wording) -> Outcome {
    let (status, is_json) = (response.status(), is_json(&response));
    let bytes = match read(response, LIMIT_BYTES).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let reason = format!("the reply is larger than {LIMIT_BYTES} bytes; pass a reference instead");
            return Outcome::Failure(Failure::fatal(ErrorType::Persistence, wording.about(&reason)));
        }
        Err(error) => return Outcome::Failure(wording.not_sent(&error)),
    };
    let body = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(reply)) if is_json => match reply.get("result").and_then(Value::as_str) {
            Some("success") => return success(reply, wording),
            Some("skip") => {
                return Outcome::Skip { reason: said(&reply, wording).unwrap_or_else(|| "skip".to_owned()) };
            }
            Some("failure") => return Outcome::Failure(failure(&reply, wording)),
            _ => Value::Object(reply),
        },
        Ok(value) if is_json => value,
        _ => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    };
    let outputs = Map::from_iter([("status".to_owned(), json!(status.as_u16())), ("body".to_owned(), body)]);
    Outcome::Success { outputs }
}

fn success(mut reply: Map<String, Value>, wording: &Wording) -> Outcome {
    match reply.remove("outputs") {
        None | Some(Value::Null) => Outcome::success(),
        Some(Value::Object(outputs)) => Outcome::Success { outputs },
        Some(_) => {
            let reason = wording.about("the `outputs` of the reply are not an object");
            Outcome::Failure(Failure::fatal(ErrorType::Validation, reason))
        }
    }
}

/// A failure that does not say so is final: the example of the contract has `"retryable": false`.
fn failure(reply: &Map<String, Value>, wording: &Wording) -> Failure {
    let reason = said(reply, wording).unwrap_or_else(|| wording.about("the reply says failure"));
    match reply.get("retryable").and_then(Value::as_bool) {
        Some(true) => Failure::retryable(ErrorType::Business, reason),
        Some(false) | None => Failure::fatal(ErrorType::Business, reason),
    }
}

fn said(reply: &Map<String, Value>, wording: &Wording) -> Option<String> {
    wording.said(reply.get("reason")?.as_str()?)
}

pub(super) async fn rejected(response: Response, expected: Option<&[u16]>, wording: &Wording) -> Failure {
    let status = response.status();
    if status.is_redirection() {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let target = location.and_then(|location| redirect_target(response.url(), location));
        let what = target.map_or_else(String::new, |target| format!("points to {target}; "));
        return Failure::fatal(
            ErrorType::Business,
            wording.status(status, Some(&format!("{what}redirects are not followed"))),
        );
    }
    let detail = match expected {
        Some(expected) if !status.is_client_error() && !status.is_server_error() => {
            Some(format!("expected {expected:?}"))
        }
        _ => tokio::time::timeout(DETAIL_WITHIN, detail(response)).await.ok().flatten(),
    };
    let reason = wording.status(status, detail.as_deref());
    match status {
        StatusCode::REQUEST_TIMEOUT => Failure::retryable(ErrorType::Timeout, reason),
        StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => Failure::retryable(ErrorType::Unavailable, reason),
        status if status.is_server_error() => Failure::retryable(ErrorType::Unavailable, reason),
        _ => Failure::fatal(ErrorType::Business, reason),
    }
}

/// The sentence in which a JSON error says what is wrong, by the names that are in use for it.
async fn detail(response: Response) -> Option<String> {
    if !is_json(&response) {
        return None;
    }
    let bytes = read(response, DETAIL_BYTES).await.ok().flatten()?;
    let reply: Value = serde_json::from_slice(&bytes).ok()?;
    let names = ["reason", "detail", "message", "title", "error"];
    names.iter().find_map(|name| reply.get(name)?.as_str().map(str::to_owned))
}

fn is_json(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// None when there is more than `limit`, of which no more than that is ever held.
async fn read(mut response: Response, limit: usize) -> reqwest::Result<Option<Vec<u8>>> {
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if bytes.len() + piece.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}
