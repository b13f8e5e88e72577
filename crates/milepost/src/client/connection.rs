//! Requests and answers: where the server is, who asks, and what its words mean.

use std::time::Duration;

use bytes::Bytes;
use milepost_core::api::ProblemView;
use milepost_core::id::IdempotencyKey;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ClientError;

/// Long enough for a slow handshake, short enough to notice a host that is not there.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A verb on a plan of a hundred thousand tasks takes a while, and a large plan takes a while to send.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);
/// How often a request that has a key is sent before its sender is told that it did not arrive.
const SENDS: u32 = 4;
/// Before the second; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A server may ask for more patience, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Of an answer that is no answer of ours, this much is shown.
const SHOWN: usize = 200;

/// Speaks to one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    /// Marked as a secret, so that no debugging output shows it.
    authorization: Option<HeaderValue>,
}

/// Which part of a list.
#[derive(Debug, Clone, Default)]
pub struct Paging {
    /// The `nextCursor` of the part before.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

impl Paging {
    pub(super) fn query(&self) -> Query {
        Query::default().with("cursor", self.cursor.as_ref()).with("limit", self.limit)
    }
}

/// What follows the `?`; what is not said is left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pairs: Vec<(&'static str, String)>,
}

impl Query {
    pub(super) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.pairs.extend(value.map(|value| (name, value.to_string())));
        self
    }
}

impl Client {
    /// For the server at this address, such as `http://127.0.0.1:8080`.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let bad = |why: &str| ClientError::Settings(format!("`{url}` is no address of a server: {why}"));
        let parsed = Url::parse(url).map_err(|_| bad("expected something like http://127.0.0.1:8080"))?;
        match parsed.scheme() {
            "http" | "https" => {}
            _ => return Err(bad("expected http:// or https://")),
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("a server takes a token, and no name and password"));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad("it may not have a `?` or `#`"));
        }
        Ok(Self { http: connections(&parsed)?, url: parsed, authorization: None })
    }

    /// What the server asks for to know who is there.
    pub fn token(mut self, token: &str) -> Result<Self, ClientError> {
        let bad = |_| ClientError::Settings("the token has characters that no token has".to_owned());
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(bad)?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// The address that it was made for.
    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// A question to `/api/v1/...`; each part of the path is encoded by itself.
    pub(super) fn request(&self, method: Method, path: &[&str], query: &Query) -> RequestBuilder {
        let mut url = self.url.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        if !query.pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(&query.pairs);
        }
        let request = self.http.request(method, url);
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        }
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: Query) -> Result<T, ClientError> {
        self.answer(self.request(Method::GET, path, &query)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.answer(self.request(Method::POST, path, &Query::default()).json(body)).await
    }

    /// Sends a request again while the server is away. It has a key, so that it is done once all the same.
    pub(super) async fn insist<T, F>(&self, send: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut wait = FIRST_WAIT;
        for _ in 1..SENDS {
            match send().await {
                Err(error) if error.is_passing() => {
                    tokio::time::sleep(asked_to_wait(&error).unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
                outcome => return outcome,
            }
        }
        send().await
    }

    pub(super) async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let bytes = self.bytes(request).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.nonsense(format!("{error} in {}", beginning(&bytes))))
    }

    async fn bytes(&self, request: RequestBuilder) -> Result<Bytes, ClientError> {
        let request = request.header(ACCEPT, "application/json, application/problem+json").timeout(ANSWER_WITHIN);
        let response = self.send(request).await?;
        response.bytes().await.map_err(|error| self.unreachable(error))
    }

    /// The answer, if it is no error; its body is still to come.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn refusal(&self, response: Response) -> ClientError {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(error) => return self.unreachable(error),
        };
        if let Ok(problem) = serde_json::from_slice::<ProblemView>(&body) {
            return ClientError::problem(problem, retry_after(&headers));
        }
        match status {
            // The words of a proxy whose server is away.
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                self.unreachable(format!("answered {status}"))
            }
            _ => self.nonsense(format!("{status} with {}", beginning(&body))),
        }
    }

    pub(super) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Unreachable { url: self.url().to_owned(), source: source.into() }
    }

    pub(super) fn nonsense(&self, detail: impl Into<String>) -> ClientError {
        ClientError::Protocol { url: self.url().to_owned(), detail: detail.into() }
    }
}

/// For a request whose sender gave it none.
pub(super) fn new_key() -> IdempotencyKey {
    IdempotencyKey::parse(uuid::Uuid::now_v7().to_string()).expect("a UUID is short and printable")
}

/// As RFC 9651 has strings: bare, a key that begins with a quote or a space would not arrive as it is.
pub(super) fn quoted(key: &IdempotencyKey) -> String {
    format!("\"{}\"", key.as_str().replace('\\', r"\\").replace('"', r#"\""#))
}

fn asked_to_wait(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Problem { retry_after, .. } => *retry_after,
        ClientError::Settings(_) | ClientError::Unreachable { .. } | ClientError::Protocol { .. } => None,
    }
}

fn connections(url: &Url) -> Result<reqwest::Client, ClientError> {
    // One provider for the whole process; whoever was first is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let here = is_loopback(url);
    // A system without certificates still speaks plain HTTP: there, HTTPS trusts nobody, and says so when used.
    builder(here)
        .build()
        .or_else(|_| builder(here).tls_certs_only([]).build())
        .map_err(|error| ClientError::Settings(format!("no HTTP client could be made: {error}")))
}

fn builder(loopback: bool) -> ClientBuilder {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("milepost/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_WITHIN)
        // A token goes to the server that was named, and nowhere else.
        .redirect(Policy::none())
        .referer(false)
        // Only we know which requests may be sent twice.
        .retry(reqwest::retry::never());
    // A proxy cannot know what listens on this very machine.
    if loopback { builder.no_proxy() } else { builder }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn beginning(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(SHOWN).collect();
    if text.is_empty() { "no words".to_owned() } else { format!("`{text}`") }
}

/// The `Content-Type` of an answer, without its parameters.
pub(super) fn content_type(response: &Response) -> &str {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}
