//! Where a database is: `sqlite:PATH`, `postgres://…` or `mysql://…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    Sqlite(PathBuf),
    Postgres(String),
    Mysql(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{shown}` is no database; write `sqlite:PATH`, `postgres://USER:PASSWORD@HOST/DATABASE` or `mysql://USER:PASSWORD@HOST/DATABASE`"
)]
pub struct BadAddress {
    shown: String,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => {
                Ok(Address::Sqlite(path.strip_prefix("//").unwrap_or(path).into()))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Address::Postgres(text.to_owned())),
            Some(("mysql" | "mariadb", rest)) if rest.starts_with("//") => Ok(Address::Mysql(format!("mysql:{rest}"))),
            Some(_) | None => Err(BadAddress { shown: without_password(text) }),
        }
    }
}

impl Address {
    /// True if it is written where everybody sees it.
    pub fn holds_password(&self) -> bool {
        match self {
            Address::Sqlite(_) => false,
            Address::Postgres(url) | Address::Mysql(url) => without_password(url) != *url,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Address::Postgres(url) | Address::Mysql(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `scheme://user:secret@host` without `:secret`, and without parameters, which may hold one as well.
fn without_password(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else { return url.to_owned() };
    let user = rest[..at].split(':').next().unwrap_or_default();
    format!("{scheme}://{user}{}", &rest[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address: Address = "postgres://ann:s3cret@db:5432/shop?password=x".parse().unwrap();
        assert_eq!(address.to_string(), "postgres://ann@db:5432/shop");
        assert!(address.holds_password());
        let error = "oracle://ann:s3cret@db/shop".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn a_sqlite_address_is_a_path() {
        assert_eq!("sqlite:a/b.db".parse::<Address>().unwrap(), Address::Sqlite("a/b.db".into()));
        assert_eq!("sqlite:///tmp/b.db".parse::<Address>().unwrap(), Address::Sqlite("/tmp/b.db".into()));
        assert!("sqlite:".parse::<Address>().is_err());
    }
}
