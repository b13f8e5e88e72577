//! Who can reach an address, and what it takes to let them.

use std::net::SocketAddr;

use milepost_core::time::Timestamp;
use milepost_store::Store;

use crate::app::Settings;
use crate::server::ServeError;

impl Settings {
    /// Where others can reach it, nobody gets in without a token; with no token there, it would be of no use to anybody.
    pub async fn for_address(
        mut self,
        address: SocketAddr,
        store: &dyn Store,
        now: Timestamp,
    ) -> Result<Self, ServeError> {
        if is_for_this_machine_alone(address) {
            return Ok(self);
        }
        self.require_token = true;
        let live = |expires_at: Option<Timestamp>| expires_at.is_none_or(|at| at > now);
        let tokens = store.tokens().await?;
        if !tokens.iter().any(|token| token.revoked_at.is_none() && live(token.expires_at)) {
            return Err(ServeError::NoToken { address });
        }
        Ok(self)
    }
}

pub fn is_for_this_machine_alone(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_is_for_this_machine_alone() {
        for (address, alone) in [
            ("127.0.0.1:80", true),
            ("127.8.8.8:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("10.0.0.1:80", false),
            ("[::ffff:10.0.0.1]:80", false),
        ] {
            assert_eq!(is_for_this_machine_alone(address.parse().unwrap()), alone, "{address}");
        }
    }
}
