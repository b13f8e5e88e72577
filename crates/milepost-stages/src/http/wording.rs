//! Failures in words: what was asked of whom, and what came of it. Never a header's value, a password, or a query.

use std::error::Error;

use milepost_core::failure::{ErrorType, Failure};
use reqwest::{StatusCode, Url};

use super::address::Refused;
use super::request::Request;

/// Shorter ones are no secrets, and hiding them would only garble the text.
const SHORTEST_SECRET: usize = 4;
const DETAIL_CHARS: usize = 300;

pub(super) struct Wording {
    /// `POST http://host/path`.
    subject: String,
    /// What must not come back to us in a reply's own words.
    secrets: Vec<String>,
}

impl Wording {
    pub(super) fn of(request: &Request) -> Self {
        let mut secrets = Vec::new();
        for value in request.headers.values().filter_map(|value| value.to_str().ok()) {
            // `Bearer x`: the scheme is none, the rest is.
            secrets.extend([value, value.rsplit(' ').next().unwrap_or_default()].map(str::to_owned));
        }
        secrets.extend([request.url.username(), request.url.password().unwrap_or_default()].map(str::to_owned));
        secrets.extend(request.url.query().map(str::to_owned));
        secrets.extend(request.url.query_pairs().map(|(_, value)| value.into_owned()));
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        // The longest first, or a part of one would leave the rest of it standing.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { subject: format!("{} {}", request.method, shown(&request.url)), secrets }
    }

    pub(super) fn status(&self, status: StatusCode, detail: Option<&str>) -> String {
        let name = status.canonical_reason().map_or_else(String::new, |name| format!(" {name}"));
        let detail = detail.and_then(|detail| self.said(detail)).map_or_else(String::new, |said| format!(": {said}"));
        format!("{}: {}{name}{detail}", self.subject, status.as_u16())
    }

    pub(super) fn about(&self, what: &str) -> String {
        format!("{}: {what}", self.subject)
    }

    /// The other side's words, fit for a line of a log; none if it said nothing.
    pub(super) fn said(&self, text: &str) -> Option<String> {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret, "***");
        }
        let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cut: String = visible.trim().chars().take(DETAIL_CHARS).collect();
        (!cut.is_empty()).then_some(cut)
    }

    /// No reply came, or only a part of it.
    pub(super) fn not_sent(&self, error: &reqwest::Error) -> Failure {
        let causes = || std::iter::successors(error.source(), |&error| error.source());
        if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<Refused>()) {
            return Failure::fatal(ErrorType::Validation, self.about(&refused.to_string()));
        }
        // The innermost cause is the one that says something: `Connection refused`, `certificate has expired`.
        let cause = causes().last().map_or_else(String::new, |cause| format!(": {cause}"));
        let (error_type, what) = if error.is_builder() {
            return Failure::fatal(ErrorType::Validation, self.about(&format!("cannot be sent{cause}")));
        } else if error.is_timeout() {
            (ErrorType::Timeout, "timed out".to_owned())
        } else if error.is_connect() {
            (ErrorType::Network, format!("could not connect{cause}"))
        } else {
            (ErrorType::Network, format!("the connection was lost{cause}"))
        };
        Failure::retryable(error_type, self.about(&what))
    }
}

/// Scheme, host, port and path.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both only fail for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Where a redirect points, relative to nothing: it may name a path only.
pub(super) fn redirect_target(base: &Url, location: &str) -> Option<String> {
    base.join(location).ok().map(|target| shown(&target))
}
