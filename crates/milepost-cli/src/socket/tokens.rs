//! Making, listing and revoking tokens, by whoever owns the store.

use milepost_core::api::{NewToken, TokenRequest, TokenView};
use milepost_core::time::Millis;
use milepost_engine::Engine;
use milepost_engine::owner::{Order, VERSION};
use milepost_server::{BadToken, mint};
use milepost_store::StoreError;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenOrder {
    v: u32,
    token: TokenVerb,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokenVerb {
    /// How long it lives counts from the owner's own now.
    Create {
        request: TokenRequest,
        lives_for: Option<Millis>,
    },
    List,
    Revoke {
        id: String,
    },
}

/// Once this is sent, it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokenAnswer {
    Created(NewToken),
    Tokens(Vec<TokenView>),
    Revoked(TokenView),
    Refused { message: String },
    NotFound { message: String },
    Failed { message: String },
}

impl TokenOrder {
    pub(crate) fn new(token: TokenVerb) -> Self {
        Self { v: VERSION, token }
    }
}

impl Order for TokenOrder {
    type Answer = TokenAnswer;

    async fn perform(self, engine: &Engine) -> TokenAnswer {
        self.token.perform(engine).await.unwrap_or_else(|answer| answer)
    }
}

impl TokenVerb {
    async fn perform(self, engine: &Engine) -> Result<TokenAnswer, TokenAnswer> {
        let (store, now) = (engine.store(), engine.clock().now());
        let rows = store.tokens().await?;
        match self {
            TokenVerb::Create { mut request, lives_for } => {
                request.expires_at = lives_for.map(|length| now + length).or(request.expires_at);
                let (row, new) = mint(request, &rows, now)?;
                store.put_token(row).await?;
                Ok(TokenAnswer::Created(new))
            }
            TokenVerb::List => Ok(TokenAnswer::Tokens(rows.iter().map(TokenView::from).collect())),
            TokenVerb::Revoke { id } => {
                let missing = || TokenAnswer::NotFound { message: format!("there is no token `{id}`") };
                let mut row = rows.into_iter().find(|row| row.id == id).ok_or_else(missing)?;
                if row.revoked_at.is_none() {
                    row.revoked_at = Some(now);
                    store.put_token(row.clone()).await?;
                }
                Ok(TokenAnswer::Revoked(TokenView::from(&row)))
            }
        }
    }
}

impl From<BadToken> for TokenAnswer {
    fn from(error: BadToken) -> Self {
        TokenAnswer::Refused { message: error.to_string() }
    }
}

impl From<StoreError> for TokenAnswer {
    fn from(error: StoreError) -> Self {
        TokenAnswer::Failed { message: Failure::from(error).message }
    }
}

impl TokenAnswer {
    /// What to tell the person, when it is not what they asked for.
    pub(crate) fn failure(self) -> Failure {
        match self {
            TokenAnswer::Refused { message } => Failure::new(Exit::Refused, message),
            TokenAnswer::NotFound { message } => Failure::new(Exit::NotFound, message),
            TokenAnswer::Failed { message } => Failure::new(Exit::OutOfReach, message),
            TokenAnswer::Created(_) | TokenAnswer::Tokens(_) | TokenAnswer::Revoked(_) => {
                Failure::new(Exit::OutOfReach, "the process that owns the store answered something else")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::api::Scope;

    #[test]
    fn an_order_about_tokens_reads_back_as_it_was_sent() {
        let request =
            TokenRequest { name: "ops".to_owned(), scope: Scope::Admin, tenants: Vec::new(), expires_at: None };
        for verb in [
            TokenVerb::Create { request, lives_for: Some(Millis::from_secs(60)) },
            TokenVerb::List,
            TokenVerb::Revoke { id: "a".to_owned() },
        ] {
            let order = TokenOrder::new(verb);
            let line = serde_json::to_vec(&order).unwrap();
            assert_eq!(serde_json::from_slice::<TokenOrder>(&line).unwrap(), order);
        }
    }
}
