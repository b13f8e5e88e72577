//! Whatever comes in at the owner's end: what every owner can be asked for, or something about tokens.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_engine::Engine;
use milepost_engine::owner::{Hear, Listener, Operations, Order, understand, written};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::tokens::TokenOrder;

/// Listens beside a store that this process owns.
pub(crate) fn listen(database: &Path, engine: &Engine) -> io::Result<Listener> {
    Listener::bind_with(database, engine, Arc::new(Incoming))
}

struct Incoming;

impl Hear for Incoming {
    fn hear<'a>(&'a self, line: &'a [u8], engine: &'a Engine) -> BoxFuture<'a, Vec<u8>> {
        async move {
            if !is_about_tokens(line) {
                return Operations.hear(line, engine).await;
            }
            match understand::<TokenOrder>(line) {
                Ok(order) => written(&order.perform(engine).await),
                Err(answer) => written(&answer),
            }
        }
        .boxed()
    }
}

fn is_about_tokens(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        token: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Kind>(line).is_ok_and(|kind| kind.token.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::tokens::TokenVerb;
    use super::*;

    #[test]
    fn an_order_about_tokens_is_told_from_others() {
        assert!(is_about_tokens(&written(&TokenOrder::new(TokenVerb::List))));
        for line in ["{}", "[]", r#"{"v":1}"#, r#"{"v":1,"signal":{}}"#] {
            assert!(!is_about_tokens(line.as_bytes()), "{line}");
        }
    }
}
