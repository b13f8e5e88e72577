//! What a benchmark measured, and what the machine gives without us.

use std::time::Duration;

use hdrhistogram::Histogram;
use milepost_store::StoreStats;
use serde_json::{Value, json};

use super::subject::RawRates;

/// Latencies in microseconds, to three digits.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("an hour to three digits is within bounds"))
    }

    pub(super) fn record(&mut self, micros: u64) {
        self.0.saturating_record(micros.max(1));
    }

    pub(super) fn json(&self) -> Value {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        json!({ "p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": self.0.max() as f64 / 1000.0 })
    }
}

/// What a measurement took.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) elapsed: Duration,
    pub(super) stats: StoreStats,
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
}

/// One run of one workload.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) workload: &'static str,
    pub(super) tasks: usize,
    pub(super) stages: usize,
    pub(super) in_flight: usize,
    pub(super) taken: Taken,
    pub(super) latencies: Latencies,
    /// What only this workload measures.
    pub(super) more: Value,
}

impl Figures {
    pub(super) fn json(&self, store: &str, rss: u64, raw: &RawRates) -> Value {
        let Taken { elapsed, stats, bytes, cpu } = &self.taken;
        let seconds = elapsed.as_secs_f64();
        let done = (self.tasks * self.stages) as f64;
        let per_stage = |count: u64| if done > 0.0 { count as f64 / done } else { 0.0 };
        let stages_per_second = done / seconds;
        let mut figures = json!({
            "workload": self.workload,
            "store": store,
            "tasks": self.tasks,
            "stages": self.stages,
            "inFlight": self.in_flight,
            "seconds": seconds,
            "tasksPerSecond": self.tasks as f64 / seconds,
            "stagesPerSecond": stages_per_second,
            "latencyMs": self.latencies.json(),
            "rssBytes": rss,
            "fsyncs": stats.syncs,
            "bytesWritten": bytes,
            "fsyncsPerStage": per_stage(stats.syncs),
            "bytesPerStage": per_stage(*bytes),
            "roundTrips": stats.round_trips,
            "meanBatch": mean_batch(stats),
            "cpuMicrosPerStage": cpu.as_micros() as f64 / done.max(1.0),
            "raw": {
                "fdatasyncPerSecond": raw.fdatasyncs,
                "commitsPerSecond": raw.commits,
                "storeRowsPerSecond": raw.stages,
            },
        });
        // Only where the stages that are counted were all written.
        if matches!(self.workload, "chain" | "retry" | "single") {
            let of = if self.in_flight == 1 { raw.commits } else { raw.stages };
            figures["ofRaw"] = of.map(|of| stages_per_second / of).into();
        }
        if let (Some(figures), Value::Object(more)) = (figures.as_object_mut(), self.more.clone()) {
            figures.extend(more);
        }
        figures
    }
}

/// Operations in one transaction, on average.
pub(super) fn mean_batch(stats: &StoreStats) -> f64 {
    stats.operations as f64 / stats.batches.max(1) as f64
}

/// What this process has written to the disk, as the kernel counts it; 0 where it does not say.
pub(super) fn bytes_written() -> u64 {
    proc_field("/proc/self/io", "write_bytes:").unwrap_or(0)
}

/// What this process has computed so far, on all cores together.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The most memory this process has had.
pub(super) fn peak_rss() -> u64 {
    proc_field("/proc/self/status", "VmHWM:").unwrap_or(0) * 1024
}

fn proc_field(path: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}
