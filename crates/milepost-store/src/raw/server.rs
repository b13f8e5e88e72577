//! A server that is measured: in tables or keys of the measurement's own, which it leaves nothing of.

use std::time::{Duration, Instant};

use milepost_core::task::Outputs;

use crate::error::BoxError;
use crate::open::StoreUrl;
use crate::sqlite::raw::stage_body;

use super::{mysql, postgres, redis};

/// Each rate is taken for this long.
pub(super) const LASTS: Duration = Duration::from_millis(1500);
/// Tasks whose rows or keys are written to in turn.
pub(super) const TASKS: i64 = 512;

/// Rates per second.
#[derive(Debug, Clone, Copy)]
pub struct ServerRates {
    /// One stage at a time, each durable before the next.
    pub commits: f64,
    /// Stages, as many at once as was asked for.
    pub stages: f64,
}

/// Where to measure, and with which bytes.
#[derive(Debug)]
pub struct Server {
    url: StoreUrl,
    body: String,
}

impl Server {
    /// None when it is no server's store.
    pub fn new(url: &StoreUrl, outputs: Outputs) -> Option<Result<Self, BoxError>> {
        url.server()?;
        Some(stage_body(outputs).map(|body| Self { url: url.clone(), body: body.text }))
    }

    /// Stages one by one, then `batch` at a time.
    pub async fn measure(&self, batch: usize) -> Result<ServerRates, BoxError> {
        let batch = batch.clamp(1, 2048);
        let Some(url) = self.url.server() else { return Err("it is no server".into()) };
        match self.url.backend() {
            "postgres" => postgres::measure(url, &self.body, batch).await,
            "mysql" => mysql::measure(url, &self.body, batch).await,
            _ => redis::measure(url, &self.body, batch).await,
        }
    }
}

/// A name that nobody else has, for as long as the measurement takes.
pub(super) fn scratch_name() -> String {
    format!("milepost_raw_{}", std::process::id())
}

/// How much was done in how long.
#[derive(Debug)]
pub(super) struct Tally {
    start: Instant,
    count: u64,
}

impl Tally {
    pub(super) fn start() -> Self {
        Self { start: Instant::now(), count: 0 }
    }

    pub(super) fn goes_on(&self) -> bool {
        self.start.elapsed() < LASTS
    }

    pub(super) fn add(&mut self, count: usize) {
        self.count += count as u64;
    }

    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.start.elapsed().as_secs_f64()
    }
}
