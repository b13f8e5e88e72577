//! Whatever comes in at the owner's end: a verb, or something about tokens.

use milepost_engine::Engine;
use serde::{Deserialize, Serialize};

use super::ask::Order;
use super::operation::{Answer, Request};
use super::tokens::TokenOrder;

/// Goes up with every change that an older reader would misunderstand.
pub(super) const VERSION: u32 = 1;

#[derive(Debug)]
pub(super) enum Incoming {
    Verb(Request),
    Token(TokenOrder),
}

impl Incoming {
    pub(super) fn parse(line: &[u8]) -> Result<Self, Answer> {
        // The version and the kind first: the rest depends on them.
        #[derive(Deserialize)]
        struct Head {
            v: u32,
            #[serde(default)]
            token: Option<serde::de::IgnoredAny>,
        }
        let not_understood = |error: serde_json::Error| Answer::Failed { message: format!("not understood: {error}") };
        let head: Head = serde_json::from_slice(line).map_err(not_understood)?;
        if head.v != VERSION {
            let message = format!(
                "the process that owns the store speaks version {VERSION}, and was asked in version {}; use the same milepost",
                head.v
            );
            return Err(Answer::Failed { message });
        }
        Ok(match head.token {
            Some(_) => Incoming::Token(serde_json::from_slice(line).map_err(not_understood)?),
            None => Incoming::Verb(serde_json::from_slice(line).map_err(not_understood)?),
        })
    }

    /// Does it, and writes the answer down.
    pub(super) async fn perform(self, engine: &Engine) -> Vec<u8> {
        match self {
            Incoming::Verb(request) => written(&request.perform(engine).await),
            Incoming::Token(order) => written(&order.perform(engine).await),
        }
    }
}

pub(super) fn written(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_another_version_is_refused_by_name() {
        let Err(Answer::Failed { message }) = Incoming::parse(br#"{"v": 2, "something": "else"}"#) else { panic!() };
        assert!(message.contains("version 1") && message.contains("version 2"), "{message}");
    }

    #[test]
    fn what_is_neither_a_verb_nor_about_tokens_is_not_understood() {
        for line in ["{}", "[]", r#"{"v":1}"#, r#"{"v":1,"token":{"steal":{}}}"#] {
            assert!(matches!(Incoming::parse(line.as_bytes()), Err(Answer::Failed { .. })), "{line}");
        }
    }
}
