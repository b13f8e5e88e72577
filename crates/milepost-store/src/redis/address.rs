//! Where the store is, and what its keys begin with.

use crate::error::StoreError;

/// What an URL says, with the parts that only we understand taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// For the driver.
    pub(super) url: String,
    pub(super) prefix: String,
    /// Asked for; a server that says it is part of one needs no asking.
    pub(super) cluster: bool,
}

impl Address {
    /// `redis://host:port/db?prefix=executor&cluster=true`
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (server, query) = url.split_once('?').unwrap_or((url, ""));
        let mut address = Self { url: server.to_owned(), prefix: "executor".to_owned(), cluster: false };
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("prefix", prefix)) => address.prefix = checked_prefix(prefix)?,
                Some(("cluster", "true")) => address.cluster = true,
                Some(("cluster", "false")) => address.cluster = false,
                _ => others.push(pair),
            }
        }
        if !others.is_empty() {
            address.url = format!("{server}?{}", others.join("&"));
        }
        Ok(address)
    }

    /// On a cluster all keys are in one slot, so that one script can reach them.
    pub(super) fn key_prefix(&self, cluster: bool) -> String {
        if cluster || self.cluster { format!("{{{}}}:", self.prefix) } else { format!("{}:", self.prefix) }
    }
}

fn checked_prefix(prefix: &str) -> Result<String, StoreError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._:-".contains(letter);
    let prefix = prefix.trim_end_matches(':');
    if prefix.is_empty() || !prefix.chars().all(fits) {
        let detail = format!("the prefix `{prefix}` cannot begin a key; letters, digits and `.`, `_`, `:`, `-` can");
        return Err(StoreError::Format { detail });
    }
    Ok(prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn keys_begin_with_executor_unless_the_url_says_otherwise() {
        let address = Address::parse("redis://127.0.0.1:6379").unwrap();
        assert_eq!((address.url.as_str(), address.key_prefix(false).as_str()), ("redis://127.0.0.1:6379", "executor:"));
        let address = Address::parse("redis://host/2?prefix=prod:executor&protocol=resp3").unwrap();
        assert_eq!(address.url, "redis://host/2?protocol=resp3");
        assert_eq!(address.key_prefix(false), "prod:executor:");
    }

    #[test]
    fn on_a_cluster_the_prefix_is_one_hash_tag() {
        let address = Address::parse("redis://host?cluster=true").unwrap();
        assert_eq!(address.key_prefix(false), "{executor}:");
        assert_eq!(Address::parse("redis://host").unwrap().key_prefix(true), "{executor}:");
    }

    #[test]
    fn a_prefix_that_would_not_stay_a_prefix_is_refused() {
        for prefix in ["", ":", "a{b}", "a b"] {
            assert!(Address::parse(&format!("redis://host?prefix={prefix}")).is_err(), "{prefix}");
        }
    }
}
