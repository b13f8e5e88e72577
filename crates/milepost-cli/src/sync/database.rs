//! Which database is meant: a URL, `env:NAME` for the variable that has one, or a name from the settings.

use milepost_tables::{Address, TableError};

use crate::context::Context;
use crate::exit::{Exit, Failure};

/// A database by the word that somebody typed for it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// As it was typed, and as a plan says it.
    pub(crate) word: String,
    pub(crate) address: Address,
}

impl Place {
    pub(crate) fn named(context: &Context, word: &str) -> Result<Self, Failure> {
        let url = match context.databases.get(word) {
            Some(url) => url_of(url)?,
            None if !word.contains(':') => return Err(unknown(context, word)),
            None => url_of(word)?,
        };
        let address = url.parse().map_err(|error| Failure::new(Exit::Usage, format!("{error}")))?;
        Ok(Self { word: word.to_owned(), address })
    }

    /// The word itself tells it to everybody who sees the plan.
    pub(crate) fn tells_password(&self) -> bool {
        self.word.parse() == Ok(self.address.clone()) && self.address.holds_password()
    }
}

fn url_of(word: &str) -> Result<String, Failure> {
    match word.strip_prefix("env:") {
        Some(name) => std::env::var(name)
            .map_err(|_| Failure::new(Exit::Usage, format!("there is no variable `{name}` (in `{word}`)"))),
        None => Ok(word.to_owned()),
    }
}

fn unknown(context: &Context, word: &str) -> Failure {
    let known: Vec<&str> = context.databases.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "no names yet".to_owned() } else { known.join(", ") };
    Failure::new(Exit::Usage, format!("`{word}` is no database; the section [databases] of the settings has {known}"))
        .help("write sqlite:PATH, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, or env:NAME")
}

/// Whatever a database does not let us see is out of our reach.
pub(crate) fn unreadable(error: &TableError) -> Failure {
    Failure::new(Exit::OutOfReach, crate::exit::chain(error))
}
