//! `milepost.toml`: settings under the environment and under flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use milepost_engine::OnStoreLoss;
use serde::Deserialize;

use crate::exit::{Exit, Failure};
use crate::files::Files;

const DEFAULT_FILE: &str = "milepost.toml";

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// As `--store`.
    pub(crate) store: Option<String>,
    /// As `--server`; before `store` where a command can use either.
    pub(crate) server: Option<String>,
    /// As `--token-file`.
    pub(crate) token_file: Option<PathBuf>,
    /// As `--node`.
    pub(crate) node: Option<String>,
    /// Tasks in hand at once, whatever a plan's `max_concurrency` allows.
    pub(crate) capacity: Option<usize>,
    /// As `--on-store-loss`.
    pub(crate) on_store_loss: Option<StoreLoss>,
    /// As `--recovery`.
    pub(crate) recovery: Option<Recovery>,
    pub(crate) color: Option<Color>,
    pub(crate) serve: Serve,
    pub(crate) kafka: Kafka,
    pub(crate) files: Files,
    /// Databases that plans may name: URLs, or `env:VARIABLE` for the variable that has one.
    pub(crate) databases: BTreeMap<String, String>,
}

/// Who decides, when all nodes were gone, about plans that do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Recovery {
    /// They go on by themselves.
    Auto,
    /// A person decides.
    Manual,
}

impl From<Recovery> for milepost_core::plan::Recovery {
    fn from(recovery: Recovery) -> Self {
        match recovery {
            Recovery::Auto => milepost_core::plan::Recovery::Auto,
            Recovery::Manual => milepost_core::plan::Recovery::Manual,
        }
    }
}

/// Of `serve`, each as the flag of its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Serve {
    pub(crate) listen: Option<String>,
    pub(crate) allow_commands: Option<bool>,
    pub(crate) allow_link_local: Option<bool>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) require_token: Option<bool>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) rate_limit: Option<u32>,
    pub(crate) otlp: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    /// As in plan files: `30s`.
    pub(crate) drain_timeout: Option<String>,
}

/// How `serve` reads messages and publishes outcomes. Lengths of time as in plan files: `30s`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kafka {
    /// As `--kafka`.
    pub(crate) brokers: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) dead_letter_topic: Option<String>,
    pub(crate) completed_topic: Option<String>,
    pub(crate) failed_topic: Option<String>,
    pub(crate) group: Option<String>,
    /// Tasks that messages set off and that run here at once.
    pub(crate) concurrency: Option<usize>,
    pub(crate) partitions: Option<i32>,
    pub(crate) replication: Option<i32>,
    pub(crate) deadline: Option<String>,
    pub(crate) remember: Option<String>,
    pub(crate) patience: Option<String>,
    pub(crate) max_message_bytes: Option<usize>,
    /// Files with stages, by the name that messages call them.
    pub(crate) chains: BTreeMap<String, PathBuf>,
    /// For the client library, by its own names.
    pub(crate) properties: BTreeMap<String, String>,
}

/// What a node does with its tasks while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreLoss {
    /// Running stages finish, and nothing new starts until it is back
    Hold,
    /// Tasks go on in memory, and are written when it is back
    Continue,
    /// Tasks stop at the end of their stage, and fail
    Fail,
}

impl From<StoreLoss> for OnStoreLoss {
    fn from(loss: StoreLoss) -> Self {
        match loss {
            StoreLoss::Hold => OnStoreLoss::Hold,
            StoreLoss::Continue => OnStoreLoss::Continue,
            StoreLoss::Fail => OnStoreLoss::Fail,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
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
    let least = [
        ("capacity", config.capacity == Some(0)),
        ("concurrency", config.kafka.concurrency == Some(0)),
        ("partitions", config.kafka.partitions.is_some_and(|partitions| partitions < 1)),
        ("replication", config.kafka.replication.is_some_and(|replication| replication < 1)),
    ];
    if let Some((key, _)) = least.iter().find(|(_, is_less)| *is_less) {
        return Err(Failure::new(Exit::Usage, format!("{}: `{key}` must be at least 1", path.display())));
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
    fn serving_has_a_section_of_its_own_as_strict_as_the_rest() {
        let text = "[serve]\nlisten = '127.0.0.1:0'\nrate_limit = 50\nlog_format = 'json'\n";
        let config = parse(Path::new("milepost.toml"), text).unwrap();
        assert_eq!((config.serve.rate_limit, config.serve.log_format), (Some(50), Some(LogFormat::Json)));
        let failure = parse(Path::new("milepost.toml"), "[serve]\nport = 80\n").unwrap_err();
        assert!(failure.message.contains("unknown field `port`"), "{}", failure.message);
    }

    #[test]
    fn kafka_has_a_section_of_its_own_as_strict_as_the_rest() {
        let text = "[kafka]\nbrokers = 'a:9092,b:9092'\nconcurrency = 2\n[kafka.chains]\nresize = 'resize.yaml'\n";
        let config = parse(Path::new("milepost.toml"), text).unwrap();
        assert_eq!((config.kafka.concurrency, config.kafka.chains.len()), (Some(2), 1));
        let failure = parse(Path::new("milepost.toml"), "[kafka]\nbroker = 'a:9092'\n").unwrap_err();
        assert!(failure.message.contains("unknown field `broker`"), "{}", failure.message);
        let failure = parse(Path::new("milepost.toml"), "[kafka]\nconcurrency = 0\n").unwrap_err();
        assert!(failure.message.ends_with("`concurrency` must be at least 1"), "{}", failure.message);
    }

    #[test]
    fn databases_have_names() {
        let text = "[databases]\nshop = 'sqlite:shop.db'\nwarehouse = 'env:WAREHOUSE'\n";
        let config = parse(Path::new("milepost.toml"), text).unwrap();
        assert_eq!(config.databases["warehouse"], "env:WAREHOUSE");
    }

    #[test]
    fn every_key_may_be_left_out() {
        assert_eq!(parse(Path::new("milepost.toml"), "").unwrap(), Config::default());
    }
}
