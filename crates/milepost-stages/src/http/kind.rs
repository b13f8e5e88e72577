//! One attempt of `http:`, from its parameters to an outcome.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;

use super::address::{Lookup, Reach, system_lookup};
use super::request::Request;
use super::wording::Wording;
use super::{client, reply, request, trace};

/// `http:` sends one request and obeys the reply. All attempts of one value share its connections.
///
/// It refuses link-local and cloud metadata addresses, whichever name or spelling leads to them: a plan must not be
/// able to ask the machine it runs on for that machine's credentials.
pub struct HttpKind {
    reach: Reach,
    lookup: Lookup,
    /// Made by the first request: reading the system's certificates takes a while.
    client: OnceLock<Result<Client, String>>,
}

impl HttpKind {
    pub fn new() -> Self {
        Self { reach: Reach::NoLinkLocal, lookup: system_lookup(), client: OnceLock::new() }
    }

    /// Lets requests go to link-local and metadata addresses as well.
    pub fn allow_link_local(self) -> Self {
        Self { reach: Reach::Everywhere, ..self }
    }

    /// Asks `lookup` for the addresses of a name, instead of the system. Refused addresses stay refused.
    pub fn resolve_with<F, A>(self, lookup: F) -> Self
    where
        F: Fn(String) -> A + Send + Sync + 'static,
        A: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Self { lookup: Arc::new(move |name| Box::pin(lookup(name))), ..self }
    }

    fn client(&self) -> Result<&Client, Failure> {
        let client = self.client.get_or_init(|| client::build(self.reach, self.lookup.clone()));
        client.as_ref().map_err(|reason| Failure::fatal(ErrorType::Unknown, reason.clone()))
    }

    async fn exchange(&self, call: &StageCall) -> Result<Outcome, Failure> {
        let request = request::parse(&call.with).map_err(invalid)?;
        self.reach.check_literal(&request.url).map_err(invalid)?;
        let wording = Wording::of(&request);
        let expected = request.expect.clone();
        let sending = self.prepared(request, call)?.send();
        let response = sending.await.map_err(|error| wording.not_sent(&error))?;
        Ok(reply::judge(response, expected.as_deref(), &wording, SystemTime::now()).await)
    }

    fn prepared(&self, request: Request, call: &StageCall) -> Result<RequestBuilder, Failure> {
        let mut headers = own_headers(call).map_err(invalid)?;
        if let Some(body) = &request.body {
            headers.insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static(body.content_type));
        }
        // The plan has the last word, also about what we would send by ourselves.
        headers.extend(request.headers);
        let builder = self.client()?.request(request.method, request.url).headers(headers);
        Ok(match request.body {
            Some(body) => builder.body(body.bytes),
            None => builder,
        })
    }
}

fn own_headers(call: &StageCall) -> Result<HeaderMap, String> {
    let value = |text: String| HeaderValue::try_from(text).map_err(|error| error.to_string());
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", value(call.idempotency_key())?);
    headers.insert("milepost-fence", call.fence.into());
    headers.insert("traceparent", value(trace::parent(call))?);
    Ok(headers)
}

fn invalid(reason: String) -> Failure {
    Failure::fatal(ErrorType::Validation, reason)
}

impl Default for HttpKind {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for HttpKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpKind").field("reach", &self.reach).finish_non_exhaustive()
    }
}

#[async_trait]
impl StageKind for HttpKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        match request::check(with)? {
            Some(url) => self.reach.check_literal(&url),
            None => Ok(()),
        }
    }

    async fn run(&self, call: StageCall) -> Outcome {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Outcome::Failure(Failure::retryable(ErrorType::Timeout, "cancelled")),
            outcome = self.exchange(&call) => outcome.unwrap_or_else(Outcome::Failure),
        }
    }
}
