//! Which store a URL means, and opening it. A password in a URL is for the store alone: whatever is shown has `***`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::StoreError;
use crate::mysql::MysqlStore;
use crate::nodes::Membership;
use crate::postgres::PostgresStore;
use crate::redis::RedisStore;
use crate::sqlite::SqliteStore;
use crate::store::Store;

/// A store by its name: `sqlite:PATH`, or the address of a server that several nodes share.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(Place);

#[derive(Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Server { kind: Kind, url: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Mysql,
    Redis,
}

/// Why a text names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("`{0}` names no kind of store")]
    NoKind(String),
    #[error("`{0}` names no file")]
    NoFile(String),
    #[error("`{0}` names no server")]
    NoServer(String),
    #[error("there is no kind of store called `{kind}` (in `{url}`)")]
    UnknownKind { kind: String, url: String },
}

impl StoreUrl {
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let Some((scheme, rest)) = url.split_once(':') else { return Err(BadUrl::NoKind(url.to_owned())) };
        let kind = match scheme {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() || path == ":memory:" {
                    return Err(BadUrl::NoFile(url.to_owned()));
                }
                return Ok(Self(Place::File(canonical(Path::new(path)))));
            }
            "postgres" | "postgresql" => Kind::Postgres,
            "mysql" | "mariadb" => Kind::Mysql,
            "redis" | "rediss" => Kind::Redis,
            _ => return Err(BadUrl::UnknownKind { kind: scheme.to_owned(), url: redacted(url) }),
        };
        if rest.strip_prefix("//").is_none_or(str::is_empty) {
            return Err(BadUrl::NoServer(redacted(url)));
        }
        // Its driver knows one name for both.
        let url = url.strip_prefix("mariadb:").map_or_else(|| url.to_owned(), |rest| format!("mysql:{rest}"));
        Ok(Self(Place::Server { kind, url }))
    }

    /// The file, when it is one: it has one owner at a time, who listens beside it.
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Place::File(path) => Some(path),
            Place::Server { .. } => None,
        }
    }

    /// The address with all its secrets, when it is a server's: for a driver, and never to be shown.
    pub fn server(&self) -> Option<&str> {
        match &self.0 {
            Place::File(_) => None,
            Place::Server { url, .. } => Some(url),
        }
    }

    /// Several nodes may be on it.
    pub fn is_shared(&self) -> bool {
        self.file().is_none()
    }

    /// What kind of store it is, in a word.
    pub fn backend(&self) -> &'static str {
        match &self.0 {
            Place::File(_) => "sqlite",
            Place::Server { kind, .. } => kind.name(),
        }
    }

    /// It tells a secret to whoever sees it.
    pub fn has_password(&self) -> bool {
        self.server().is_some_and(|url| redacted(url) != url)
    }

    /// A node owns a file, which is made if there is none; a visitor reads it, whoever owns it.
    pub async fn open(&self, membership: Membership) -> Result<Arc<dyn Store>, StoreError> {
        match (&self.0, &membership.node) {
            (Place::File(path), Some(_)) => Ok(Arc::new(SqliteStore::open(path)?)),
            (Place::File(path), None) => Ok(Arc::new(SqliteStore::open_to_read(path)?)),
            (Place::Server { kind, url }, _) => {
                connect(*kind, url, membership).await.map_err(|error| without_password(error, url))
            }
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Mysql => "mysql",
            Kind::Redis => "redis",
        }
    }
}

/// The one place that knows the backends of servers.
async fn connect(kind: Kind, url: &str, membership: Membership) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match kind {
        Kind::Postgres => Arc::new(PostgresStore::open(url, membership).await?),
        Kind::Mysql => Arc::new(MysqlStore::open(url, membership).await?),
        Kind::Redis => Arc::new(RedisStore::open(url, membership).await?),
    })
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::File(path) => write!(f, "sqlite:{}", path.display()),
            Place::Server { url, .. } => f.write_str(&redacted(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// A text as others may see it: every password in a URL is `***`. What is not clearly something else counts as one.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (user, host) = user_and_host(rest);
    let user = match user {
        Some(user) => format!("{}:***@", user.split(':').next().unwrap_or_default()),
        None => String::new(),
    };
    let plain = rest.len() - host.len();
    // A name without a password is no secret.
    let user = if rest[..plain].contains(':') { user } else { rest[..plain].to_owned() };
    format!("{scheme}://{user}{}", without_secret_parameters(host))
}

/// A password may have been left unencoded, with any sign in it: it ends at the last `@`.
fn user_and_host(rest: &str) -> (Option<&str>, &str) {
    let before_query = &rest[..rest.find('?').unwrap_or(rest.len())];
    match before_query.rfind('@').or_else(|| rest.rfind('@')) {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    }
}

fn without_secret_parameters(host: &str) -> String {
    let Some((address, query)) = host.split_once('?') else { return host.to_owned() };
    let shown = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if ["pass", "pwd", "secret"].iter().any(|word| name.to_lowercase().contains(word)) => {
            format!("{name}=***")
        }
        Some(_) | None => parameter.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(shown).collect();
    format!("{address}?{}", query.join("&"))
}

/// Drivers may quote what they were given.
fn without_password(error: StoreError, url: &str) -> StoreError {
    let (Some(user), _) = user_and_host(url.split_once("://").map_or(url, |(_, rest)| rest)) else { return error };
    let Some((_, password)) = user.split_once(':').filter(|(_, password)| !password.is_empty()) else { return error };
    match error {
        StoreError::Unavailable { backend, operation, source } => {
            let mut text = source.to_string();
            let mut cause = source.source();
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            if !text.contains(password) {
                return StoreError::Unavailable { backend, operation, source };
            }
            StoreError::Unavailable { backend, operation, source: text.replace(password, "***").into() }
        }
        StoreError::Format { detail } => StoreError::Format { detail: detail.replace(password, "***") },
        other => other,
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
            assert_eq!(StoreUrl::parse(url).unwrap().file(), Some(Path::new(path)));
        }
    }

    #[test]
    fn a_server_has_more_than_one_name_for_its_kind() {
        let cases = [
            ("postgres://h/d", "postgres"),
            ("postgresql://h/d", "postgres"),
            ("mysql://h/d", "mysql"),
            ("mariadb://h/d", "mysql"),
            ("redis://h", "redis"),
            ("rediss://h", "redis"),
        ];
        for (url, backend) in cases {
            let url = StoreUrl::parse(url).unwrap();
            assert_eq!((url.backend(), url.is_shared()), (backend, true));
        }
        assert_eq!(StoreUrl::parse("mariadb://h/d").unwrap().server(), Some("mysql://h/d"));
    }

    #[test]
    fn a_text_that_names_no_store_is_refused() {
        for url in ["milepost.db", "sqlite:", "sqlite::memory:", "oracle://x", "postgres:", "redis://"] {
            assert!(StoreUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let cases = [
            ("postgres://ann:s3cret@h:5432/d", "postgres://ann:***@h:5432/d"),
            ("redis://:s3cret@h:6379/0", "redis://:***@h:6379/0"),
            ("mysql://ann:s3@cr/et@h/d", "mysql://ann:***@h/d"),
            ("postgres://h/d?user=ann&password=s3cret&x=1", "postgres://h/d?user=ann&password=***&x=1"),
            ("postgres://ann:s3?cret@h/d", "postgres://ann:***@h/d"),
            ("postgres://ann@h/d", "postgres://ann@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("sqlite:/x/a.db", "sqlite:/x/a.db"),
        ];
        for (url, shown) in cases {
            assert_eq!(redacted(url), shown);
            let url = StoreUrl::parse(url).unwrap();
            assert!(!format!("{url} {url:?}").contains("s3"), "{url}");
        }
        let unknown = StoreUrl::parse("oracle://ann:s3cret@h").unwrap_err();
        assert!(!unknown.to_string().contains("s3cret"), "{unknown}");
    }

    #[test]
    fn a_driver_that_quotes_the_password_is_not_repeated() {
        let source = "cannot log in as ann with s3cret".into();
        let error = StoreError::Unavailable { backend: "postgres", operation: "connect", source };
        let StoreError::Unavailable { source, .. } = without_password(error, "postgres://ann:s3cret@h/d") else {
            panic!("another error")
        };
        assert_eq!(source.to_string(), "cannot log in as ann with ***");
    }
}
