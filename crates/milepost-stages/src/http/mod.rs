//! `http:` one request per attempt.
//!
//! * `kind`: one attempt from parameters to outcome
//! * `request`: what `with:` asks for
//! * `client`: the connections all attempts share
//! * `fetch`: files from the web, by the same rules
//! * `address`: where no request may go
//! * `trace`: the `traceparent` header
//! * `reply`: what an answer means
//! * `retry_after`: how long the other side wants to be left alone
//! * `wording`: failures in words that give no secrets away

mod address;
mod client;
mod fetch;
mod kind;
mod reply;
mod request;
mod retry_after;
mod trace;
mod wording;

pub(crate) use fetch::Fetcher;
pub use kind::HttpKind;
