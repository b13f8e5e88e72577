//! Messages from a topic to completed tasks on one node, beside the same plans submitted directly.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use milepost_core::id::PlanId;
use milepost_core::plan::{Chain, Trigger};
use milepost_core::time::Millis;
use milepost_engine::{Engine, Options};
use milepost_kafka::{Chains, Kafka, Settings};
use milepost_store::{Store, TaskQuery, TasksOf};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::json;

use super::figures::{Figures, Latencies};
use super::kind::registry;
use super::plans::Shape;
use super::subject::{Opened, Subject};
use super::workloads::{self, Before, Size};
use crate::context::Context;
use crate::exit::{Exit, Failure};

const CHAIN: &str = "bench";
/// Tasks whose latency is looked up afterwards.
const SAMPLE: usize = 1000;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Where messages are published and read.
#[derive(Debug)]
pub(super) struct Brokers(String);

impl Brokers {
    pub(super) fn new(context: &Context, named: Option<&str>) -> Result<Self, Failure> {
        match named.or(context.kafka.brokers.as_deref()) {
            Some(brokers) => Ok(Self(brokers.to_owned())),
            None => Err(Failure::new(Exit::Usage, "`bench kafka` needs a broker").help("give --kafka HOST:PORT")),
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.0);
        config
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.config().create()?)
    }
}

/// First the same plans without Kafka, then the messages, all of which are in the topic before the node begins to read.
pub(super) async fn kafka(
    subject: &Subject,
    opened: Opened,
    size: Size,
    brokers: &Brokers,
) -> Result<(Figures, Opened)> {
    let direct = workloads::single(opened.store.clone(), size).await?;
    let direct = size.tasks as f64 / direct.taken.elapsed.as_secs_f64();
    opened.cut_off();

    let name = workloads::prefix();
    let mut settings = Settings::new(&brokers.0).topic(&name);
    settings.completed_topic = format!("{name}-completed");
    settings.failed_topic = format!("{name}-failed");
    settings.group.clone_from(&name);
    settings.remember = Some(Millis::from_secs(3600));
    make_topic(brokers, &settings).await?;
    let produced = produce(brokers, &name, size.tasks).await;
    let figures = match produced {
        Ok(()) => read(subject, settings.clone(), size, direct).await,
        Err(error) => Err(error),
    };
    remove_topics(brokers, &settings).await;
    figures
}

async fn make_topic(brokers: &Brokers, settings: &Settings) -> Result<()> {
    // As many copies as the broker makes of its own accord.
    let topic = NewTopic::new(&settings.topic, settings.partitions, TopicReplication::Fixed(-1));
    let options = AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN)).request_timeout(Some(ANSWER_WITHIN));
    let made = brokers.admin()?.create_topics([&topic], &options).await.context("the topic could not be made")?;
    match made.into_iter().next() {
        Some(Err((topic, code))) => bail!("the topic {topic} could not be made: {code}"),
        Some(Ok(_)) | None => Ok(()),
    }
}

async fn remove_topics(brokers: &Brokers, settings: &Settings) {
    let Settings { topic, dead_letter_topic, completed_topic, failed_topic, .. } = settings;
    let removed = async {
        let topics = [topic, dead_letter_topic, completed_topic, failed_topic].map(String::as_str);
        brokers.admin()?.delete_topics(&topics, &AdminOptions::new()).await?;
        anyhow::Ok(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(%error, "the benchmark's topics stay: {topic}…");
    }
}

async fn produce(brokers: &Brokers, name: &str, tasks: usize) -> Result<()> {
    let producer: FutureProducer = brokers.config().set("linger.ms", "5").create()?;
    let send = async |number: usize| {
        let task = task(name, number);
        let message = json!({ "messageId": task, "taskId": task, "chain": CHAIN }).to_string();
        let record = FutureRecord::to(name).key(&task).payload(&message);
        producer.send(record, ANSWER_WITHIN).await.map_err(|(error, _)| error)
    };
    try_join_all((0..tasks).map(send)).await.context("the messages could not be published")?;
    Ok(())
}

fn task(name: &str, number: usize) -> String {
    format!("{name}-{number}")
}

/// From the first message that the node has taken in to the end of the last task.
async fn read(subject: &Subject, settings: Settings, size: Size, direct: f64) -> Result<(Figures, Opened)> {
    let options = Options { capacity: size.in_flight, chains: size.in_flight, ..workloads::node() };
    let opened = subject.open(&options).await?;
    let store = opened.store.clone();
    let name = settings.topic.clone();
    let engine = Engine::new(store.clone(), registry(), options);
    engine.start();
    let kafka = Kafka::start(engine.clone(), settings, chains(size.stages))?;
    until(&engine, "started", 1).await;
    let before = Before::now(&*store);
    until(&engine, "completed", size.tasks as u64).await;
    let taken = before.taken(&*store);
    kafka.stop_intake().await;
    engine.stop().await;
    kafka.close().await;

    let latencies = latencies(&*store, &name, size.tasks).await?;
    let rate = size.tasks as f64 / taken.elapsed.as_secs_f64();
    let more = json!({
        "messagesPerSecond": rate,
        "storeOnlyTasksPerSecond": direct,
        "ofStoreOnly": rate / direct,
    });
    let Size { tasks, stages, in_flight } = size;
    Ok((Figures { workload: "kafka", tasks, stages, in_flight, taken, latencies, more }, opened))
}

fn chains(stages: usize) -> Chains {
    let plan = Shape::chain(stages).plan(CHAIN, 0);
    let mut settings = plan.definition.settings.clone();
    settings.trigger = Trigger::Message;
    Chains::from([(CHAIN.to_owned(), Chain { settings, stages: plan.definition.stages.clone() })])
}

async fn until(engine: &Engine, what: &str, count: u64) {
    let counted = || engine.meters().readings().tasks.iter().any(|(name, found)| *name == what && *found >= count);
    while !counted() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// From a message's commit to its task's end, of some of them.
async fn latencies(store: &dyn Store, name: &str, tasks: usize) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    for number in (0..tasks).step_by(tasks.div_ceil(SAMPLE)) {
        let of = TasksOf::Plan(PlanId::parse(task(name, number))?);
        let page = store.tasks(TaskQuery { of, statuses: Vec::new(), after: None, limit: 1 }).await?;
        let row = page.items.first().context("a message has made no task")?;
        let ended = row.ended_at.context("a task has not ended")?;
        latencies.record(ended.since(row.created_at).get() * 1000);
    }
    Ok(latencies)
}
