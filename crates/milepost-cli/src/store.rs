//! Which store is meant, and opening it: as its owner, or to read it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milepost_store::sqlite::SqliteStore;
use milepost_store::{Store, StoreError};

use crate::exit::{Exit, Failure};

pub(crate) const DEFAULT_URL: &str = "sqlite:milepost.db";

/// A store that this build can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) path: PathBuf,
}

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(usage(format!("`{url}` names no kind of store")).help(format!("try `--store sqlite:{url}`")));
        };
        match scheme {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() || path == ":memory:" {
                    return Err(usage(format!("`{url}` names no file")).help(format!("try `--store {DEFAULT_URL}`")));
                }
                Ok(Self { path: canonical(Path::new(path)) })
            }
            "postgres" | "postgresql" | "mysql" | "mariadb" | "redis" | "rediss" => {
                Err(usage(format!("{scheme} stores are not in this build yet"))
                    .help(format!("try `--store {DEFAULT_URL}`")))
            }
            _ => Err(usage(format!("there is no kind of store called `{scheme}` (in `{url}`)"))
                .help(format!("try `--store {DEFAULT_URL}`"))),
        }
    }

    /// Opens the file as its one owner, and makes it if there is none.
    pub(crate) fn own(&self) -> Result<Arc<SqliteStore>, StoreError> {
        SqliteStore::open(&self.path).map(Arc::new)
    }

    /// Opens the file to read it, whoever owns it.
    pub(crate) fn read(&self) -> Result<Arc<dyn Store>, Failure> {
        match SqliteStore::open_to_read(&self.path) {
            Ok(store) => Ok(Arc::new(store)),
            Err(StoreError::NotFound { .. }) => Err(self.missing()),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Why it could not be opened, naming the file where the error does not.
    pub(crate) fn failure(&self, error: StoreError) -> Failure {
        let unnamed = matches!(error, StoreError::Unavailable { .. });
        let mut failure = Failure::from(error);
        if unnamed {
            failure.message = format!("{}: {}", self.path.display(), failure.message);
        }
        failure
    }

    pub(crate) fn must_exist(&self) -> Result<(), Failure> {
        if self.path.exists() { Ok(()) } else { Err(self.missing()) }
    }

    fn missing(&self) -> Failure {
        Failure::new(Exit::OutOfReach, format!("there is no store at {}", self.path.display()))
            .help("`milepost run FILE` makes one; `--store sqlite:PATH` names another")
    }
}

/// One file has one name, so that its lock and its socket are found by whatever way leads to it.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        (Ok(_) | Err(_), Some(_) | None) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_url_may_have_slashes_or_not() {
        for (url, path) in [("sqlite:/x/a.db", "/x/a.db"), ("sqlite:///x/a.db", "/x/a.db")] {
            assert_eq!(StoreUrl::parse(url).unwrap().path, Path::new(path));
        }
    }

    #[test]
    fn what_is_no_store_is_bad_usage_and_the_message_says_what_to_type() {
        for url in ["milepost.db", "sqlite:", "sqlite::memory:", "oracle://x", "postgres://x", "redis://x"] {
            let failure = StoreUrl::parse(url).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{url}");
            assert!(!failure.help.is_empty(), "{url}");
        }
    }
}
