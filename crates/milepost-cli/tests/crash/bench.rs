//! `bench` works on every workload, says all it promises, and leaves nothing behind.

use serde_json::Value;

use crate::support::World;

const KEYS: [&str; 13] = [
    "workload",
    "store",
    "tasks",
    "stages",
    "inFlight",
    "seconds",
    "tasksPerSecond",
    "stagesPerSecond",
    "latencyMs",
    "rssBytes",
    "fsyncs",
    "bytesWritten",
    "raw",
];

fn has_every_figure(figures: &Value, workload: &str) {
    for key in KEYS {
        assert!(figures.get(key).is_some_and(|value| !value.is_null()), "no {key} in {figures}");
    }
    assert_eq!(figures["workload"], workload);
    for (part, keys) in [
        ("latencyMs", ["p50", "p95", "p99"]),
        ("raw", ["fdatasyncPerSecond", "commitsPerSecond", "storeRowsPerSecond"]),
    ] {
        for key in keys {
            let figure = figures[part][key].as_f64();
            assert!(figure.is_some_and(|figure| figure > 0.0), "{part}.{key} is {figure:?} in {figures}");
        }
    }
}

#[test]
fn every_workload_prints_every_figure_and_leaves_no_file_behind() {
    let workloads = ["chain", "single", "retry", "submit", "timers", "resume", "replay", "workflow"];
    // Side by side: each measures the bare disk for some seconds.
    let running: Vec<_> = workloads
        .map(|workload| {
            let world = World::new();
            let size = ["--tasks", "20", "--stages", "2", "--in-flight", "4", "--json"];
            let run = world.start(&[&["bench", workload][..], &size].concat());
            (world, workload, run)
        })
        .into_iter()
        .collect();
    for (world, workload, run) in running {
        let finished = run.end().must_exit(0);
        let figures = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
        has_every_figure(&figures, workload);
        let left = std::fs::read_dir(world.path()).unwrap().flatten().map(|file| file.file_name());
        // The test's own files begin with a dot.
        let left: Vec<_> = left.filter(|name| !name.as_encoded_bytes().starts_with(b".")).collect();
        assert!(left.is_empty(), "{workload} left {left:?}");
    }
}
