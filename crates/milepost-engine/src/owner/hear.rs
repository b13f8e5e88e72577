//! Whatever comes in at the owner's end.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::messages::MessageOrder;
use super::operation::{Answer, Order, Request};
use super::signal::SignalOrder;
use crate::engine::Engine;

/// Goes up with every change that an older reader would misunderstand.
pub const VERSION: u32 = 1;

/// Does what a line asks for, and answers with a line.
pub trait Hear: Send + Sync {
    fn hear<'a>(&'a self, line: &'a [u8], engine: &'a Engine) -> BoxFuture<'a, Vec<u8>>;
}

/// What every owner can be asked for: the operator's verbs, signals, messages and dead letters.
#[derive(Debug, Clone, Copy)]
pub struct Operations;

impl Hear for Operations {
    fn hear<'a>(&'a self, line: &'a [u8], engine: &'a Engine) -> BoxFuture<'a, Vec<u8>> {
        async move {
            match parse(line) {
                Ok(Incoming::Verb(request)) => written(&request.perform(engine).await),
                Ok(Incoming::Signal(order)) => written(&order.perform(engine).await),
                Ok(Incoming::Message(order)) => written(&order.perform(engine).await),
                Err(answer) => written(&answer),
            }
        }
        .boxed()
    }
}

#[derive(Debug)]
enum Incoming {
    Verb(Request),
    Signal(SignalOrder),
    Message(MessageOrder),
}

fn parse(line: &[u8]) -> Result<Incoming, Answer> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        signal: Option<IgnoredAny>,
        #[serde(default)]
        message: Option<IgnoredAny>,
    }
    let kind: Kind = understand(line)?;
    Ok(match (kind.signal, kind.message) {
        (Some(_), _) => Incoming::Signal(understand(line)?),
        (None, Some(_)) => Incoming::Message(understand(line)?),
        (None, None) => Incoming::Verb(understand(line)?),
    })
}

/// Reads a request, if it is of the version that is spoken here.
pub fn understand<T: DeserializeOwned>(line: &[u8]) -> Result<T, Answer> {
    // The version first: the rest depends on it.
    #[derive(Deserialize)]
    struct Head {
        v: u32,
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
    serde_json::from_slice(line).map_err(not_understood)
}

/// An answer as a line, without its end.
pub fn written(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use milepost_core::id::{IdempotencyKey, StageName, TaskId};
    use milepost_core::task::By;

    use super::*;

    #[test]
    fn a_request_of_another_version_is_refused_by_name() {
        let Err(Answer::Failed { message }) = parse(br#"{"v": 2, "something": "else"}"#) else { panic!() };
        assert!(message.contains("version 1") && message.contains("version 2"), "{message}");
    }

    #[test]
    fn what_is_no_order_at_all_is_not_understood() {
        for line in ["{}", "[]", r#"{"v":1}"#, r#"{"v":1,"signal":{"steal":{}}}"#, r#"{"v":1,"message":{"steal":{}}}"#]
        {
            assert!(matches!(parse(line.as_bytes()), Err(Answer::Failed { .. })), "{line}");
        }
    }

    #[test]
    fn a_signal_reads_back_as_it_was_sent() {
        let (task, name) = (TaskId::parse("order-17").unwrap(), StageName::parse("approved").unwrap());
        let key = IdempotencyKey::parse("k").unwrap();
        let order = SignalOrder::new(task, name, serde_json::json!({ "by": "Ann" }), By::new("a@b"), key);
        let Ok(Incoming::Signal(read)) = parse(&written(&order)) else { panic!() };
        assert_eq!(read, order);
    }

    #[test]
    fn a_signal_without_a_key_is_understood() {
        let line = r#"{"v":1,"signal":{"task":"order-17","name":"approved"},"by":{"who":"a@b"}}"#;
        assert!(matches!(parse(line.as_bytes()), Ok(Incoming::Signal(_))));
    }
}
