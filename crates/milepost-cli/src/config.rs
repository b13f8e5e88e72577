//! `milepost.toml`: settings under the environment and under flags.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::exit::{Exit, Failure};

const DEFAULT_FILE: &str = "milepost.toml";

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// As `--store`.
    pub(crate) store: Option<String>,
    /// As `--node`.
    pub(crate) node: Option<String>,
    /// Tasks in hand at once, whatever a plan's `max_concurrency` allows.
    pub(crate) capacity: Option<usize>,
    pub(crate) color: Option<Color>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Config {
    /// A file that was named must be there; the one in the working directory need not.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_owned);
        match std::fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text),
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(Failure::new(Exit::Usage, format!("cannot read {}: {error}", path.display()))),
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Config, Failure> {
    let config: Config = toml::from_str(text)
        .map_err(|error| Failure::new(Exit::Usage, format!("{}: {}", path.display(), error.to_string().trim_end())))?;
    if config.capacity == Some(0) {
        return Err(Failure::new(Exit::Usage, format!("{}: `capacity` must be at least 1", path.display())));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_and_named() {
        let failure = parse(Path::new("milepost.toml"), "stor = 'sqlite:a.db'\n").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("unknown field `stor`"), "{}", failure.message);
    }

    #[test]
    fn every_key_may_be_left_out() {
        assert_eq!(parse(Path::new("milepost.toml"), "").unwrap(), Config::default());
    }
}
