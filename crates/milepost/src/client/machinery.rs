//! What keeps the plans going: nodes, locks, and the keys to the API.

use milepost_core::api::{List, LockView, NewToken, NodeView, TokenRequest, TokenView};
use reqwest::Method;

use super::connection::{Client, Paging, Query};
use super::error::ClientError;

impl Client {
    pub async fn nodes(&self) -> Result<List<NodeView>, ClientError> {
        self.get(&["nodes"], Query::default()).await
    }

    pub async fn locks(&self, paging: &Paging) -> Result<List<LockView>, ClientError> {
        self.get(&["locks"], paging.query()).await
    }

    pub async fn tokens(&self) -> Result<List<TokenView>, ClientError> {
        self.get(&["tokens"], Query::default()).await
    }

    /// The only answer that has the new token's secret.
    pub async fn create_token(&self, token: &TokenRequest) -> Result<NewToken, ClientError> {
        self.post(&["tokens"], token).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<TokenView, ClientError> {
        self.answer(self.request(Method::DELETE, &["tokens", id], &Query::default())).await
    }
}
