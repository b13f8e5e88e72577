//! Fetching what is behind a URL, under the same rules as `http:` stages.

use std::sync::OnceLock;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use milepost_core::failure::{ErrorType, Failure};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Url};

use super::address::{Reach, system_lookup};
use super::request::Request;
use super::wording::Wording;
use super::{client, reply};

/// The length if it is known, and the bytes in pieces.
pub(crate) type Fetched = (Option<u64>, BoxStream<'static, Result<Bytes, Failure>>);

#[derive(Debug)]
pub(crate) struct Fetcher {
    reach: Reach,
    /// Made by the first request: reading the system's certificates takes a while.
    client: OnceLock<Result<Client, String>>,
}

impl Fetcher {
    pub(crate) fn new(allow_link_local: bool) -> Self {
        let reach = if allow_link_local { Reach::Everywhere } else { Reach::NoLinkLocal };
        Self { reach, client: OnceLock::new() }
    }

    pub(crate) async fn get(&self, url: Url) -> Result<Fetched, Failure> {
        self.reach.check_literal(&url).map_err(|reason| Failure::fatal(ErrorType::Validation, reason))?;
        let client = self.client.get_or_init(|| client::build(self.reach, system_lookup())).as_ref();
        let client = client.map_err(|reason| Failure::fatal(ErrorType::Unknown, reason.clone()))?;
        let request = Request { method: Method::GET, url, headers: HeaderMap::new(), body: None, expect: None };
        let wording = Wording::of(&request);
        let response = client.get(request.url).send().await.map_err(|error| wording.not_sent(&error))?;
        if !response.status().is_success() {
            return Err(reply::rejected(response, None, &wording).await);
        }
        let size = response.content_length();
        let pieces = futures::stream::try_unfold((response, wording), |(mut response, wording)| async {
            let piece = response.chunk().await.map_err(|error| wording.not_sent(&error))?;
            Ok(piece.map(|piece| (piece, (response, wording))))
        });
        Ok((size, pieces.boxed()))
    }
}
