//! What can be measured, in Prometheus' words. Requests are counted here; the rest is read from the engine's and the
//! store's own meters when somebody asks. No label holds an id.
//!
//! The names of the deployment executor's metrics, and ours: `task_active` is `milepost_tasks_in_hand`;
//! `task_completed`, `task_failed`, `task_paused`, `task_cancelled` are `milepost_tasks_completed_total` and so on;
//! `rollback_count` and `rollback_failed` are `milepost_tasks_rollback_started_total` and
//! `milepost_tasks_rollback_failed_total`; `stage_duration` and `task_duration` are
//! `milepost_stage_duration_seconds` and `milepost_task_duration_seconds`. `task_heartbeat_lag` and `heartbeat_sent`
//! have none: a node proves that it lives by the lock on its store's file, or by a lease that its store judges; how late
//! it is shows in `milepost_timer_lag_seconds`.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milepost_engine::{BOUNDS_MS, Engine, Reading};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::app::ConsumerOnce;

/// What a scraper is told it gets.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const ANSWER_BOUNDS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<Asked, Histogram, fn() -> Histogram>,
    streams: Gauge,
    dead_letters: Gauge,
    outbox_oldest: Gauge<f64, AtomicU64>,
}

/// What has to be looked up before it can be told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Books {
    /// Up to a thousand.
    pub(crate) dead_letters: usize,
    /// How long the first of what is to be published has waited; zero when there is nothing.
    pub(crate) outbox_oldest: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: &'static str,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Somebody who watches, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new(engine: &Engine, consumer: &ConsumerOnce) -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("milepost_build", "The program that answers", build);
        let started: Gauge<f64, AtomicU64> = Gauge::default();
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        registry.register_with_unit(
            "process_start_time",
            "When the server was made, since 1970",
            Unit::Seconds,
            started,
        );
        let requests = Family::<Answered, Counter>::default();
        registry.register("milepost_http_requests", "Requests answered", requests.clone());
        let durations: Family<Asked, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(ANSWER_BOUNDS));
        let help = "Time until an answer began";
        registry.register_with_unit("milepost_http_request_duration", help, Unit::Seconds, durations.clone());
        let streams = Gauge::default();
        registry.register("milepost_sse_clients", "Live streams that are open", streams.clone());
        let dead_letters = Gauge::default();
        let help = "What was given up and not put back, of the whole store; 1000 stands for that and more";
        registry.register("milepost_dead_letters", help, dead_letters.clone());
        let outbox_oldest = Gauge::default();
        let help = "How long the first message in the outbox of the whole store has waited to be published";
        registry.register_with_unit("milepost_outbox_oldest", help, Unit::Seconds, outbox_oldest.clone());
        registry.register_collector(Box::new(Node(engine.clone())));
        registry.register_collector(Box::new(Intake(consumer.clone())));
        Self { registry, requests, durations, streams, dead_letters, outbox_oldest }
    }

    pub(crate) fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.durations.get_or_create(&Asked { method, route: route.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answered { method, route, status }).inc();
    }

    /// For a live stream to hold as long as it is open.
    pub(crate) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    pub(crate) fn looked_up(&self, books: Books) {
        self.dead_letters.set(i64::try_from(books.dead_letters).unwrap_or(i64::MAX));
        self.outbox_oldest.set(books.outbox_oldest.as_secs_f64());
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What the engine and its store know of themselves.
#[derive(Debug)]
struct Node(Engine);

impl Collector for Node {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let readings = self.0.meters().readings();
        for (what, count) in readings.tasks {
            counter(&mut to, &format!("milepost_tasks_{what}"), &help(what), count)?;
        }
        counter(
            &mut to,
            "milepost_retries_scheduled",
            "Stages that failed and wait to be tried again",
            readings.retries_scheduled,
        )?;
        let help = "Checkpoints that were found invalid";
        counter(&mut to, "milepost_checkpoints_discarded", help, readings.checkpoints_discarded)?;
        let in_hand = i64::try_from(self.0.in_hand()).unwrap_or(i64::MAX);
        gauge(&mut to, "milepost_tasks_in_hand", "Tasks that this node works on", None, in_hand)?;
        let chains = self.0.chains();
        let help = "Tasks that messages set off and that run here";
        gauge(&mut to, "milepost_chains_active", help, None, i64::try_from(chains.active).unwrap_or(i64::MAX))?;
        let help = "Tasks that messages set off, in hand here and in line for a place";
        gauge(&mut to, "milepost_chains_waiting", help, None, i64::try_from(chains.waiting).unwrap_or(i64::MAX))?;
        let not_durable = i64::try_from(self.0.not_durable()).unwrap_or(i64::MAX);
        let help = "Tasks that go on in memory because the store is away";
        gauge(&mut to, "milepost_tasks_not_durable", help, None, not_durable)?;
        let help = "1 while the store does not take what this node has for it";
        gauge(&mut to, "milepost_store_away", help, None, i64::from(self.0.store_is_away()))?;
        stages(&mut to, &readings.stages)?;
        lengths(&mut to, "milepost_task_duration", "From a task's first start to its end", &readings.task)?;
        lengths(&mut to, "milepost_timer_lag", "How late waiting stages were woken", &readings.timer_lag)?;
        let stats = self.0.store().stats();
        counter(&mut to, "milepost_store_syncs", "Times the disk was asked to keep what was written", stats.syncs)?;
        counter(&mut to, "milepost_store_batches", "Transactions, each of them a group commit", stats.batches)?;
        counter(&mut to, "milepost_store_operations", "Operations that rode in them", stats.operations)?;
        counter(&mut to, "milepost_store_commits", "Task commits among those", stats.commits)?;
        if let Some(bytes) = resident_bytes() {
            gauge(&mut to, "process_resident_memory", "Memory in use", Some(&Unit::Bytes), bytes)?;
        }
        Ok(())
    }
}

/// How messages come in, on a node where they do.
#[derive(Debug)]
struct Intake(ConsumerOnce);

impl Collector for Intake {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(consumer) = self.0.get() else { return Ok(()) };
        let status = consumer.status();
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let help = "1 while the intake of messages is paused";
        gauge(&mut to, "milepost_consumer_paused", help, None, i64::from(status.paused))?;
        let help = "1 while the intake hears from its broker";
        gauge(&mut to, "milepost_consumer_connected", help, None, i64::from(status.connected))?;
        let help = "Partitions that this node reads";
        gauge(&mut to, "milepost_consumer_partitions", help, None, signed(status.partitions))?;
        let help = "Topics that take nothing of what this node publishes";
        gauge(&mut to, "milepost_consumer_failing_topics", help, None, signed(status.failing_topics.len() as u64))?;
        if let Some(lag) = status.lag {
            let help = "Messages of this node's partitions that are still to be read";
            gauge(&mut to, "milepost_consumer_lag_messages", help, None, signed(lag))?;
        }
        let help = "Messages that were made durable here";
        counter(&mut to, "milepost_consumer_consumed", help, status.consumed_count)?;
        let help = "Messages of no use, and tasks that messages set off and that failed here";
        counter(&mut to, "milepost_consumer_failed", help, status.failed_count)
    }
}

fn help(what: &str) -> String {
    format!("Tasks {} on this node since it began", what.replace('_', " "))
}

fn counter(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(to.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, unit: Option<&Unit>, value: i64) -> fmt::Result {
    ConstGauge::new(value).encode(to.encode_descriptor(name, help, unit, MetricType::Gauge)?)
}

fn stages(to: &mut DescriptorEncoder<'_>, stages: &[(&'static str, Reading)]) -> fmt::Result {
    let (name, help) = ("milepost_stage_duration", "How long attempts at stages took");
    let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (outcome, reading) in stages {
        let label = Outcome { outcome };
        let (buckets, sum) = histogram(reading);
        family.encode_family(&label)?.encode_histogram::<NoLabelSet>(sum, reading.count(), &buckets, None)?;
    }
    Ok(())
}

fn lengths(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, reading: &Reading) -> fmt::Result {
    let (buckets, sum) = histogram(reading);
    let mut encoder = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    encoder.encode_histogram::<NoLabelSet>(sum, reading.count(), &buckets, None)
}

#[expect(clippy::cast_precision_loss, reason = "seconds are shown, not counted on")]
fn histogram(reading: &Reading) -> (Vec<(f64, u64)>, f64) {
    let bounds = BOUNDS_MS.iter().map(|bound| *bound as f64 / 1000.0).chain([f64::MAX]);
    (bounds.zip(reading.counts).collect(), reading.sum_ms as f64 / 1000.0)
}

/// Of this process, where the system says.
fn resident_bytes() -> Option<i64> {
    const PAGE: i64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_ascii_whitespace().nth(1)?.parse::<i64>().ok()?.checked_mul(PAGE)
}
