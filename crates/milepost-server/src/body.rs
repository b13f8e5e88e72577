//! What a request carries: read up to a limit, and as what it says it is.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use milepost_core::api::VerbRequest;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::error::Category;

use crate::app::App;
use crate::problem::{Answer, Problem};

/// More than any verb has to say.
const MOST_OF_A_VERB: usize = 64 * 1024;
/// As much as a stage's result may have: more belongs elsewhere, and a reference to it here.
const MOST_OF_A_SIGNAL: usize = 1024 * 1024;
/// A reason is written to the log of every task that it concerns.
const LONGEST_REASON: usize = 2000;

/// The whole body, or the refusal of one that is too long.
pub(crate) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Answer<Bytes> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Err(error) => Err(Problem::bad_request(format!("the body could not be read: {error}"))),
    }
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body is larger than the {most} bytes that are allowed");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
}

/// The media type without its parameters; empty when there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

pub(crate) fn unsupported(found: &str, expected: &str) -> Problem {
    let found = if found.is_empty() { "missing".to_owned() } else { format!("`{found}`") };
    let detail = format!("the Content-Type is {found}; expected {expected}");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
}

/// Text that is no JSON is a bad request; JSON that is something else than expected cannot be processed.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Io | Category::Syntax | Category::Eof => {
            Problem::new(StatusCode::BAD_REQUEST, "bad-json", format!("the body is not JSON: {error}"))
        }
        Category::Data => invalid(format!("the body is not understood: {error}")),
    })
}

/// The same of an object, or of null. A list would be taken for an object's values in their order.
pub(crate) fn object<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        json::<IgnoredAny>(bytes)?;
        return Err(invalid("the body is a list; expected an object"));
    }
    json(bytes)
}

/// A body of a few words, as JSON; none when it is empty.
async fn small(request: Request, app: &App) -> Answer<Option<Bytes>> {
    limited(request, MOST_OF_A_VERB.min(app.settings().max_body_bytes)).await
}

async fn limited(request: Request, most: usize) -> Answer<Option<Bytes>> {
    let (parts, body) = request.into_parts();
    let bytes = read(&parts.headers, body, most).await?;
    let found = media_type(&parts.headers);
    if !bytes.is_empty() && !found.eq_ignore_ascii_case("application/json") {
        return Err(unsupported(found, "application/json"));
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// A small JSON object that has to be there.
pub(crate) struct Object<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Object<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let bytes = small(request, app).await?.unwrap_or_default();
        Ok(Self(object(&bytes)?))
    }
}

/// A small JSON object that may be left out.
pub(crate) struct MaybeObject<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<App> for MaybeObject<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let Some(bytes) = small(request, app).await? else { return Ok(Self(T::default())) };
        Ok(Self(object::<Option<T>>(&bytes)?.unwrap_or_default()))
    }
}

/// JSON of any kind; an empty body is null.
pub(crate) struct AnyJson(pub(crate) Value);

impl FromRequest<App> for AnyJson {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let bytes = limited(request, MOST_OF_A_SIGNAL.min(app.settings().max_body_bytes)).await?;
        Ok(Self(bytes.map_or(Ok(Value::Null), |bytes| json(&bytes))?))
    }
}

/// What goes with a verb; an empty body says nothing.
pub(crate) struct VerbBody(pub(crate) VerbRequest);

impl FromRequest<App> for VerbBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let Some(bytes) = small(request, app).await? else { return Ok(Self(VerbRequest::default())) };
        let request = object::<Option<VerbRequest>>(&bytes)?.unwrap_or_default();
        if request.reason.as_ref().is_some_and(|reason| reason.chars().count() > LONGEST_REASON) {
            return Err(invalid(format!("`reason` has more than {LONGEST_REASON} characters")));
        }
        if request.expected_version.is_some_and(|version| i64::try_from(version).is_err()) {
            return Err(invalid("`expectedVersion` is larger than any version"));
        }
        Ok(Self(request))
    }
}

/// What was read, and makes no sense.
pub(crate) fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-body", detail)
}
