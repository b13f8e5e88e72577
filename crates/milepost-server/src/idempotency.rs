//! Requests that may be sent again: their key as the client wrote it, what makes two of them the same, and those that
//! are being answered just now.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, StatusCode};
use milepost_core::id::IdempotencyKey;
use milepost_store::RequestKey;
use sha2::{Digest, Sha256};

use crate::auth::Caller;
use crate::problem::{Answer, Problem};

pub(crate) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The key that came with a request, if one did.
pub(crate) fn key(headers: &HeaderMap) -> Answer<Option<IdempotencyKey>> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad_request("there is more than one Idempotency-Key"));
    }
    let key = value.to_str().ok().and_then(read).and_then(|key| IdempotencyKey::parse(key).ok());
    let expected = "the Idempotency-Key is not one; expected 1 to 255 printable ASCII characters, bare or in quotes";
    key.map(Some).ok_or_else(|| Problem::bad_request(expected))
}

/// Bare, or quoted as RFC 9651 has strings; the document's pattern says the same.
fn read(text: &str) -> Option<String> {
    let text = text.trim();
    let Some(quoted) = text.strip_prefix('"') else { return (!text.is_empty()).then(|| text.to_owned()) };
    let (mut key, mut characters) = (String::with_capacity(quoted.len()), quoted.chars());
    loop {
        match characters.next()? {
            '"' => return (characters.next().is_none() && !key.is_empty()).then_some(key),
            '\\' => key.push(characters.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            plain => key.push(plain),
        }
    }
}

/// The key as the store has it, with all that makes this request what it is. One caller's keys are not another's.
pub(crate) fn request_key(caller: &Caller, key: &IdempotencyKey, asked: &[&[u8]]) -> RequestKey {
    let mut digest = Sha256::new();
    for part in asked {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    // A key has no line break, so that where the name ends is never in doubt.
    RequestKey { key: format!("{}\n{key}", caller.name()), digest: digest.finalize().into() }
}

/// The keys of requests that this node is about to answer.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    keys: Mutex<HashSet<String>>,
}

/// A key that is in flight for as long as this lives.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    flight: &'a InFlight,
    key: String,
}

impl InFlight {
    pub(crate) fn enter(&self, request: &RequestKey) -> Answer<Turn<'_>> {
        let key = request.key.clone();
        if self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            return Ok(Turn { flight: self, key });
        }
        let detail = "a request with this Idempotency-Key is being answered just now; ask again in a moment";
        Err(Problem::new(StatusCode::CONFLICT, "in-flight", detail).retry_after(1))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.flight.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_bare_or_quoted() {
        for (text, expected) in [
            ("a", Some("a")),
            (" a b ", Some("a b")),
            (r#""a b""#, Some("a b")),
            (r#""a\"\\b""#, Some(r#"a"\b"#)),
            ("", None),
            (r#""""#, None),
            (r#""a"#, None),
            (r#""a"b"#, None),
            (r#""a\nb""#, None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_key_in_flight_is_refused_until_its_turn_ends() {
        let flight = InFlight::default();
        let request = RequestKey { key: "a".to_owned(), digest: [0; 32] };
        let turn = flight.enter(&request).expect("the first");
        assert!(flight.enter(&request).is_err());
        drop(turn);
        assert!(flight.enter(&request).is_ok());
    }
}
