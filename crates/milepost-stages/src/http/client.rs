//! The connections that all attempts share.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

use super::address::{Lookup, Reach, Resolver};

/// Long enough for a slow handshake, short enough to notice a host that is not there without a stage timeout.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn build(reach: Reach, lookup: Lookup) -> Result<Client, String> {
    // One provider for the whole process; whoever was first is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || plain(reach, lookup.clone());
    // A system without certificates still speaks plain HTTP: there, HTTPS trusts nobody, and says so when used.
    builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build())
        .map_err(|error| format!("no HTTP client could be made: {error}"))
}

fn plain(reach: Reach, lookup: Lookup) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("milepost/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_WITHIN)
        // A plan means the address it names: no detours by the environment, none by the other side.
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        // Attempts are counted and recorded by the engine; a repetition below it would be neither.
        .retry(reqwest::retry::never())
        .dns_resolver(Resolver::new(reach, lookup))
}
