//! Where a file is, read from its uri.

use std::path::PathBuf;

use milepost_core::failure::{ErrorType, Failure};
use object_store::path::Path as Key;
use reqwest::Url;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Disk(PathBuf),
    Object { bucket: String, key: Key },
    Web(Url),
}

impl Place {
    pub(super) fn parse(uri: &str) -> Result<Self, Failure> {
        let invalid = |reason: String| Failure::fatal(ErrorType::Validation, reason);
        let url = Url::parse(uri).map_err(|error| invalid(format!("not a uri of a file: {error}")))?;
        match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| invalid("the uri names no file of this machine".to_owned()));
                Ok(Place::Disk(path?))
            }
            "s3" => {
                let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
                let bucket = bucket.ok_or_else(|| invalid("the uri names no bucket".to_owned()))?.to_owned();
                let key = Key::from_url_path(url.path()).map_err(|error| invalid(error.to_string()))?;
                if key.as_ref().is_empty() {
                    return Err(invalid("the uri names no object of its bucket".to_owned()));
                }
                Ok(Place::Object { bucket, key })
            }
            "http" | "https" => Ok(Place::Web(url)),
            other => Err(invalid(format!("files are not kept at `{other}:`"))),
        }
    }

    /// A name beside it that nobody else uses: hidden from whoever lists what is finished.
    pub(super) fn beside(&self, name: &str) -> Option<Place> {
        match self {
            Place::Disk(path) => Some(Place::Disk(path.parent()?.join(name))),
            Place::Object { bucket, key } => {
                let mut parts: Vec<_> = key.parts().collect();
                parts.pop();
                let key = parts.into_iter().chain([name.into()]).collect();
                Some(Place::Object { bucket: bucket.clone(), key })
            }
            Place::Web(_) => None,
        }
    }
}

/// Without a password and without a query, which may be one.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Disk(path) => write!(f, "{}", path.display()),
            Place::Object { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            Place::Web(url) => {
                let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
                write!(f, "{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_what_may_be_a_secret() {
        for (uri, shown) in [
            ("https://user:word@host:8443/a/b?signature=x#y", "https://host:8443/a/b"),
            ("s3://bucket/a%20b/c", "s3://bucket/a b/c"),
            ("file:///tmp/a%20b", "/tmp/a b"),
        ] {
            assert_eq!(Place::parse(uri).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn no_spelling_leads_out_of_a_folder_unseen() {
        assert_eq!(Place::parse("file:///a/b/../../etc/passwd").unwrap(), Place::Disk("/etc/passwd".into()));
        assert_eq!(Place::parse("file:///a/%2e%2e/etc").unwrap(), Place::Disk("/etc".into()));
        for bad in ["file://host/etc", "s3://bucket", "s3:///key", "s3://bucket//a", "ftp://host/a", "/etc/passwd"] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
