//! Which store is meant, and opening it: as a node, or as a visitor. What goes wrong is told with what to look at.

use std::path::Path;
use std::sync::Arc;

use milepost_core::task::Outputs;
use milepost_core::time::Millis;
use milepost_engine::Options;
use milepost_store::raw::Server;
use milepost_store::{BadUrl, BoxError, Membership, Store, StoreError};

use crate::exit::{Exit, Failure};

pub(crate) const DEFAULT_URL: &str = "sqlite:milepost.db";

/// A store that this build can open. Shown, it tells no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(milepost_store::StoreUrl);

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        milepost_store::StoreUrl::parse(url).map(Self).map_err(|bad| {
            let help = match &bad {
                BadUrl::NoKind(url) => format!("try `--store sqlite:{url}`"),
                BadUrl::NoServer(_) => "a server is named as in postgres://user@host:5432/database".to_owned(),
                BadUrl::NoFile(_) => format!("try `--store {DEFAULT_URL}`"),
                BadUrl::UnknownKind { .. } => {
                    format!("try `--store {DEFAULT_URL}`, or postgres://…, mysql://…, redis://…")
                }
            };
            Failure::new(Exit::Usage, bad.to_string()).help(help)
        })
    }

    /// The file, when it is one: it has one owner at a time, who listens beside it.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.0.file()
    }

    /// For another process of ours, and never to be shown: the address with all its secrets.
    pub(crate) fn secret(&self) -> Option<&str> {
        self.0.server()
    }

    /// Its server alone, to be measured; none when it is a file.
    pub(crate) fn bare(&self, outputs: Outputs) -> Option<Result<Server, BoxError>> {
        Server::new(&self.0, outputs)
    }

    pub(crate) fn has_password(&self) -> bool {
        self.0.has_password()
    }

    /// Opens it as the node that these options describe; a file is then its own, and made if there is none.
    pub(crate) async fn join(&self, options: &Options) -> Result<Arc<dyn Store>, StoreError> {
        let mut membership = Membership::node(options.node.clone(), options.boot_id.clone());
        membership.lease = Millis::new(u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX));
        self.0.open(membership).await
    }

    /// Opens it to look, and where others share it also to ask for things: never to run anything.
    pub(crate) async fn visit(&self) -> Result<Arc<dyn Store>, Failure> {
        match self.0.open(Membership::visitor()).await {
            Ok(store) => Ok(store),
            Err(StoreError::NotFound { .. }) if self.file().is_some() => Err(self.missing()),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Why it could not be opened, naming the store where the error does not.
    pub(crate) fn failure(&self, error: StoreError) -> Failure {
        let unnamed = matches!(error, StoreError::Unavailable { .. });
        let mut failure = Failure::from(error);
        if !unnamed {
            return failure;
        }
        let name = self.file().map_or_else(|| self.to_string(), |path| path.display().to_string());
        failure.message = format!("{name}: {}", failure.message);
        match self.file() {
            Some(_) => failure,
            None => {
                let check = what_to_check(&failure.message);
                failure.help(check)
            }
        }
    }

    /// A server says by itself what it does not have.
    pub(crate) fn must_exist(&self) -> Result<(), Failure> {
        if self.file().is_none_or(Path::exists) { Ok(()) } else { Err(self.missing()) }
    }

    pub(crate) fn missing(&self) -> Failure {
        let name = self.file().map_or_else(|| self.to_string(), |path| path.display().to_string());
        Failure::new(Exit::OutOfReach, format!("there is no store at {name}"))
            .help("`milepost run FILE` makes one; `--store URL` names another")
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Servers and drivers say it in words of their own; these are theirs.
fn what_to_check(message: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| message.to_lowercase().contains(word));
    if says(&["not in this build"]) {
        "use another store, or a build with this one"
    } else if says(&["password", "access denied", "wrongpass", "noauth", "authentication"]) {
        "look at the user and the password in the URL, and whether that user may log in from here"
    } else if says(&["unknown database", "database \"", "no such database", "invalid db"]) {
        "look at the name of the database in the URL; it has to be there, and Milepost makes its own tables in it"
    } else if says(&["permission denied", "command denied", "noperm"]) {
        "the user in the URL needs the right to make and change tables in that database"
    } else {
        "is the server running, and does the URL have its address and port? A firewall may be in between"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_store_is_bad_usage_and_the_message_says_what_to_type() {
        for url in ["milepost.db", "sqlite:", "sqlite::memory:", "oracle://x", "postgres://", "redis:x"] {
            let failure = StoreUrl::parse(url).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{url}");
            assert!(!failure.help.is_empty(), "{url}");
        }
    }

    #[test]
    fn a_server_out_of_reach_is_told_with_what_to_look_at_and_without_the_password() {
        let url = StoreUrl::parse("postgres://ann:s3cret@db.example/jobs").unwrap();
        for (cause, check) in [
            ("connection refused (os error 111)", "is the server running"),
            ("password authentication failed for user \"ann\"", "the password in the URL"),
            ("WRONGPASS invalid username-password pair", "the password in the URL"),
            ("Access denied for user 'ann'@'localhost'", "the password in the URL"),
            ("database \"jobs\" does not exist", "the name of the database"),
            ("Unknown database 'jobs'", "the name of the database"),
        ] {
            let error = StoreError::Unavailable { backend: "postgres", operation: "connect", source: cause.into() };
            let failure = url.failure(error);
            assert_eq!(failure.exit, Exit::OutOfReach);
            assert!(failure.message.contains(cause) && failure.message.contains("ann:***@db.example"), "{failure:?}");
            assert!(failure.help[0].contains(check), "{failure:?}");
            assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
        }
    }
}
