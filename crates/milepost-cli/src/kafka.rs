//! The Kafka side of `serve`: from the configuration to a node that reads and publishes.

use std::path::Path;
use std::sync::Arc;

use milepost_core::time::Millis;
use milepost_engine::{Engine, Registry};
pub(crate) use milepost_kafka::Kafka;
use milepost_kafka::{Chains, Settings};
use milepost_server::App;

use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::plan_file;

#[derive(Debug)]
pub(crate) struct Wanted {
    settings: Settings,
    chains: Chains,
}

/// What is to be read and published, if any of it is. Every chain is checked before anything starts.
pub(crate) fn wanted(
    brokers: Option<&str>,
    config: &config::Kafka,
    registry: &Registry,
) -> Result<Option<Wanted>, Failure> {
    let Some(brokers) = brokers.or(config.brokers.as_deref()) else { return Ok(None) };
    let settings = settings(brokers, config)?;
    let chains = config.chains.iter().map(|(name, file)| Ok((name.clone(), read(file, registry)?)));
    Ok(Some(Wanted { settings, chains: chains.collect::<Result<_, Failure>>()? }))
}

/// From now on the server can say how it goes.
pub(crate) fn start(wanted: Wanted, engine: &Engine, app: &App) -> Result<Arc<Kafka>, Failure> {
    let kafka = Kafka::start(engine.clone(), wanted.settings, wanted.chains);
    let kafka = Arc::new(kafka.map_err(|error| Failure::new(Exit::Usage, chain(&error)))?);
    app.set_consumer(kafka.clone());
    Ok(kafka)
}

fn settings(brokers: &str, config: &config::Kafka) -> Result<Settings, Failure> {
    let defaults = Settings::new(brokers);
    let defaults = if let Some(topic) = &config.topic { defaults.topic(topic) } else { defaults };
    let text = |set: &Option<String>, default: String| set.clone().unwrap_or(default);
    Ok(Settings {
        dead_letter_topic: text(&config.dead_letter_topic, defaults.dead_letter_topic),
        completed_topic: text(&config.completed_topic, defaults.completed_topic),
        failed_topic: text(&config.failed_topic, defaults.failed_topic),
        group: text(&config.group, defaults.group),
        partitions: config.partitions.unwrap_or(defaults.partitions),
        replication: config.replication,
        deadline: time("deadline", config.deadline.as_deref())?.unwrap_or(defaults.deadline),
        remember: time("remember", config.remember.as_deref())?,
        patience: time("patience", config.patience.as_deref())?.unwrap_or(defaults.patience),
        max_message_bytes: config.max_message_bytes.unwrap_or(defaults.max_message_bytes),
        properties: config.properties.clone(),
        brokers: defaults.brokers,
        topic: defaults.topic,
    })
}

fn time(key: &str, text: Option<&str>) -> Result<Option<Millis>, Failure> {
    let bad = |error| Failure::new(Exit::Usage, format!("`{key}` of [kafka]: {error}"));
    text.map(|text| text.parse::<Millis>().map_err(bad)).transpose()
}

fn read(file: &Path, registry: &Registry) -> Result<milepost_core::plan::Chain, Failure> {
    plan_file::read_chain(&file.to_string_lossy(), registry).map_err(Failure::from)
}
