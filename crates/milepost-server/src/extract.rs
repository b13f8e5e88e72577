//! What comes with a request, checked as it comes in. Whatever is wrong with it is told as a problem, never as plain text.

use axum::extract::FromRequestParts;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Answer, Problem};

/// The names in the path, percent-decoded and checked.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Self(names)),
            Err(rejection) => Err(bad_path(rejection)),
        }
    }
}

fn bad_path(rejection: PathRejection) -> Problem {
    match rejection {
        PathRejection::FailedToDeserializePathParams(failed) => match failed.into_kind() {
            // Ours say by themselves what a name looks like.
            ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message) => Problem::bad_request(message),
            other => Problem::bad_request(other.to_string()),
        },
        other => Problem::bad_request(other.body_text()),
    }
}

/// A query that is read pair by pair: a name that nobody knows is a mistake worth telling, and some may be repeated.
pub(crate) trait Parameters: Default {
    /// Those there are, for the message.
    const NAMES: &'static [&'static str];

    /// Takes one pair; answers what was expected when the value is none of it, and `Unknown` for a name not among `NAMES`.
    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused>;
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Twice,
    /// What was expected.
    Expected(String),
}

pub(crate) struct Query<T>(pub(crate) T);

impl<T: Parameters, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Answer<Self> {
        let mut parameters = T::default();
        if parts.uri.query().is_some_and(|query| !query.is_empty()) {
            let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
            let axum::extract::Query(pairs) = pairs.map_err(|error| Problem::bad_request(error.body_text()))?;
            for (name, value) in &pairs {
                parameters.take(name, value).map_err(|refused| refused.into_problem::<T>(name, value))?;
            }
        }
        Ok(Self(parameters))
    }
}

impl Refused {
    fn into_problem<T: Parameters>(self, name: &str, value: &str) -> Problem {
        let short = |text: &str| text.chars().take(60).collect::<String>();
        Problem::bad_request(match self {
            Refused::Unknown if T::NAMES.is_empty() => {
                format!("unknown query parameter `{}`; there are none here", short(name))
            }
            Refused::Unknown => {
                format!("unknown query parameter `{}`; there are {}", short(name), T::NAMES.join(", "))
            }
            Refused::Twice => format!("the query parameter `{name}` is there twice"),
            Refused::Expected(expected) => {
                format!("the query parameter `{name}` is `{}`; expected {expected}", short(value))
            }
        })
    }
}

/// A route that has no query parameters.
#[derive(Default)]
pub(crate) struct NoParameters;

impl Parameters for NoParameters {
    const NAMES: &'static [&'static str] = &[];

    fn take(&mut self, _name: &str, _value: &str) -> Result<(), Refused> {
        Err(Refused::Unknown)
    }
}

// --- reading single values ---

pub(crate) fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Refused> {
    if slot.is_some() {
        return Err(Refused::Twice);
    }
    *slot = Some(value);
    Ok(())
}

pub(crate) fn flag(value: &str) -> Result<bool, Refused> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Refused::Expected("`true` or `false`".to_owned())),
    }
}

/// Digits only: no sign, no spaces.
pub(crate) fn number(value: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Refused> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && range.contains(number));
    number.ok_or_else(|| Refused::Expected(format!("a number from {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits_within_its_range() {
        assert_eq!(number("500", 1..=500), Ok(500));
        for bad in ["", "0", "501", "+1", "-1", " 1", "1.0", "1e2", "99999999999999999999"] {
            assert!(matches!(number(bad, 1..=500), Err(Refused::Expected(_))), "{bad}");
        }
    }

    #[test]
    fn a_parameter_is_given_once() {
        let mut slot = None;
        assert_eq!(once(&mut slot, 1), Ok(()));
        assert_eq!(once(&mut slot, 2), Err(Refused::Twice));
    }
}
