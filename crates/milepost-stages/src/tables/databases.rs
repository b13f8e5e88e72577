//! Which database a plan means by a word, and whether it may.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use milepost_core::failure::{ErrorType, Failure};
use milepost_tables::Address;

use crate::files::DiskAccess;

/// The databases of a node. Shown without passwords.
#[derive(Clone)]
pub struct Databases {
    named: BTreeMap<String, String>,
    disk: DiskAccess,
}

impl Databases {
    /// `named`: URLs, or `env:VARIABLE` for the variable that has one. Plans whose authors may touch every file of this
    /// machine may also name URLs and variables themselves; the others reach what is named, and SQLite files below their
    /// folders.
    pub fn new(named: BTreeMap<String, String>, disk: DiskAccess) -> Self {
        Self { named, disk }
    }

    pub(super) fn find(&self, word: &str) -> Result<Address, Failure> {
        if let Some(url) = self.named.get(word) {
            return match url.strip_prefix("env:") {
                Some(variable) => from_environment(variable),
                None => url.parse().map_err(|error| invalid(format!("the database `{word}` of this node: {error}"))),
            };
        }
        let word = Word::parse(word).map_err(invalid)?;
        match (word, &self.disk) {
            (Word::Name(name), _) => Err(self.unknown(name)),
            (Word::Address(Address::Sqlite(path)), _) => Ok(Address::Sqlite(self.file(&path)?)),
            (Word::Address(address), DiskAccess::Everywhere) => Ok(address),
            (Word::Variable(variable), DiskAccess::Everywhere) => from_environment(variable),
            (Word::Address(_) | Word::Variable(_), DiskAccess::Below(_)) => Err(invalid(
                "plans from elsewhere reach databases of this node by the names in its section [databases] alone"
                    .to_owned(),
            )),
        }
    }

    /// Where a file of this machine really is, if plans may touch it.
    pub(super) fn file(&self, path: &Path) -> Result<PathBuf, Failure> {
        let whole = std::path::absolute(path).map_err(|error| invalid(format!("{}: {error}", path.display())))?;
        self.disk.check(&whole)
    }

    fn unknown(&self, name: &str) -> Failure {
        let known: Vec<&str> = self.named.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        invalid(format!("this node knows no database `{name}`; its section [databases] names {known}"))
    }
}

impl std::fmt::Debug for Databases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Databases").field("named", &self.named.keys()).field("disk", &self.disk).finish()
    }
}

/// What a plan says.
#[derive(Debug)]
pub(super) enum Word<'a> {
    Name(&'a str),
    Variable(&'a str),
    Address(Address),
}

impl<'a> Word<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("env", "")) => Err("`env:` needs the name of a variable behind it".to_owned()),
            Some(("env", variable)) => Ok(Word::Variable(variable)),
            Some(_) => text.parse().map(Word::Address).map_err(|error: milepost_tables::BadAddress| error.to_string()),
            None if text.trim().is_empty() => Err("a database is a URL, `env:VARIABLE`, or a name".to_owned()),
            None => Ok(Word::Name(text)),
        }
    }
}

/// What the variable holds is told to nobody: it may be something else altogether.
fn from_environment(variable: &str) -> Result<Address, Failure> {
    let url =
        std::env::var(variable).map_err(|_| invalid(format!("there is no variable `{variable}` on this node")))?;
    url.parse().map_err(|_| invalid(format!("the variable `{variable}` of this node holds no URL of a database")))
}

fn invalid(reason: String) -> Failure {
    Failure::fatal(ErrorType::Validation, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn databases(disk: DiskAccess) -> Databases {
        let named = [("shop", "sqlite:/srv/shop.db"), ("home", "env:HOME"), ("bad", "oracle:x")];
        Databases::new(named.map(|(name, url)| (name.to_owned(), url.to_owned())).into(), disk)
    }

    #[test]
    fn plans_from_elsewhere_reach_named_databases_and_files_below_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let here = databases(DiskAccess::Everywhere);
        let elsewhere = databases(DiskAccess::Below(vec![folder.path().to_owned()]));
        let file = format!("sqlite:{}", folder.path().join("a.db").display());
        for word in ["shop", &file] {
            assert_eq!(here.find(word), elsewhere.find(word));
            assert!(here.find(word).is_ok());
        }
        for word in ["postgres://ann:secret@db/shop", "sqlite:/etc/passwd"] {
            assert!(here.find(word).is_ok());
            let reason = elsewhere.find(word).unwrap_err().reason;
            assert!(!reason.contains("secret"), "{reason}");
        }
        let refused = elsewhere.find("env:HOME").unwrap_err();
        assert!(refused.reason.contains("[databases]"), "{refused}");
    }

    #[test]
    fn what_cannot_be_found_is_named_and_what_a_variable_holds_is_not() {
        let here = databases(DiskAccess::Everywhere);
        let reason = |word: &str| here.find(word).unwrap_err().reason;
        assert!(reason("stop").contains("bad, home, shop"), "{}", reason("stop"));
        let home = std::env::var("HOME").unwrap();
        for word in ["home", "env:HOME"] {
            assert!(reason(word).contains("`HOME`") && !reason(word).contains(&home), "{}", reason(word));
        }
        assert!(reason("env:NO_SUCH_VARIABLE_HERE").contains("no variable"));
        assert!(reason("bad").contains("`bad`"));
        assert!(format!("{here:?}").contains("shop") && !format!("{here:?}").contains("srv"));
    }
}
