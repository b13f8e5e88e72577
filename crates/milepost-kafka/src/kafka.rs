//! A node's Kafka side as a whole: what starts it, asks how it is, and ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use milepost_engine::{Consumer, ConsumerStatus, Engine};
use tokio_util::task::TaskTracker;

use crate::chain::Chains;
use crate::cluster::Cluster;
use crate::intake::Intake;
use crate::librdkafka::Librdkafka;
use crate::relay::Relay;
use crate::settings::{Settings, SettingsError};
use crate::shared::Shared;

/// Messages come in and outcomes go out while this is there.
#[derive(Debug)]
pub struct Kafka {
    engine: Engine,
    shared: Arc<Shared>,
    intake: TaskTracker,
    relay: TaskTracker,
}

impl Kafka {
    /// Brokers that are away are waited for; only settings that cannot be right are refused.
    pub fn start(engine: Engine, settings: Settings, chains: Chains) -> Result<Self, SettingsError> {
        let cluster = Arc::new(Librdkafka::new(settings.clone(), engine.node()));
        Self::start_on(cluster, engine, settings, chains)
    }

    /// The same over brokers of the caller's own.
    pub fn start_on(
        cluster: Arc<dyn Cluster>,
        engine: Engine,
        settings: Settings,
        chains: Chains,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let shared = Arc::new(Shared::new(settings));
        let reader = cluster.reader(shared.clone())?;
        let writer = cluster.writer(shared.clone())?;
        cluster.attend(shared.clone())?;
        let (chains, shared_too) = (Arc::new(chains), shared.clone());
        let intake = Intake { engine: engine.clone(), chains, shared: shared_too, cluster: cluster.clone() };
        let relay = Relay::new(engine.clone(), shared.clone(), cluster, writer);
        let kafka = Self { engine, shared, intake: TaskTracker::new(), relay: TaskTracker::new() };
        kafka.engine.spawn_beside(kafka.intake.track_future(intake.run(reader)));
        kafka.engine.spawn_beside(kafka.relay.track_future(relay.run()));
        Ok(kafka)
    }

    /// Reads nothing more, and commits the offsets of what the store has. Waits for a few seconds at most.
    pub async fn stop_intake(&self) {
        self.shared.stopped.cancel();
        ended(&self.intake).await;
    }

    /// Ends all of it; what is still in the outbox stays there.
    pub async fn close(&self) {
        self.stop_intake().await;
        self.shared.closed.cancel();
        ended(&self.relay).await;
    }
}

impl Consumer for Kafka {
    fn status(&self) -> ConsumerStatus {
        let Shared { counts, lag, paused, ready, reach, .. } = &*self.shared;
        let tasks = self.engine.meters().readings().tasks;
        let dead_lettered = tasks.iter().find(|(name, _)| *name == "dead_lettered");
        ConsumerStatus {
            paused: paused.load(Ordering::Acquire),
            active_executions: self.engine.chains().active as u64,
            consumed_count: counts.consumed.load(Ordering::Acquire),
            failed_count: counts.failed.load(Ordering::Acquire) + dead_lettered.map_or(0, |(_, count)| *count),
            lag: u64::try_from(lag.load(Ordering::Acquire)).ok(),
            connected: ready.borrow().is_some() && !reach.is_lost(),
            partitions: self.shared.offsets().partitions().len() as u64,
            failing_topics: self.shared.failing_topics(),
        }
    }

    fn pause(&self) {
        self.shared.pause(true);
    }

    fn resume(&self) {
        self.shared.pause(false);
    }
}

async fn ended(part: &TaskTracker) {
    part.close();
    part.wait().await;
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.shared.stopped.cancel();
        self.shared.closed.cancel();
    }
}
