//! A plan of 200,000 tasks is read in seconds and in a fraction of a gigabyte. In a binary of its own, because it looks at
//! the memory of its whole process.

use std::fmt::Write;
use std::time::{Duration, Instant};

use milepost_core::id::PlanId;
use milepost_core::plan::{ParseOptions, Plan, parse};

const TASKS: usize = 200_000;

fn read(source: &str) -> Plan {
    let before = Instant::now();
    let plan = parse(source.as_bytes(), &ParseOptions::new("large.yaml", PlanId::parse("new").unwrap())).unwrap();
    let took = before.elapsed();
    eprintln!("{} bytes, {} tasks: {took:?}, peak {:?} MiB", source.len(), plan.tasks.len(), peak_mib());
    assert_eq!(plan.tasks.len(), TASKS);
    // Unoptimised code on a busy machine; a release build takes a fraction of a second.
    assert!(took < Duration::from_secs(300), "{took:?}");
    plan
}

/// The most memory this process has held, where the system tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib / 1024)
}

#[test]
fn two_hundred_thousand_tasks_are_read_in_seconds() {
    let stages = "plan: big\nstages:\n  - { name: a, run: 'true' }\n  - { name: b, run: 'true' }\n";

    let mut listed = format!("{stages}tasks:\n");
    for i in 0..TASKS {
        writeln!(listed, "  - {{ id: t-{i}, tenant: tenant-{i:06} }}").unwrap();
    }
    let plan = read(&listed);
    assert_eq!(plan.tasks[TASKS - 1].id.as_str(), "t-199999");
    drop(plan);

    let mut matrix = format!("{stages}tasks:\n  - matrix:\n      tenant:\n");
    for i in 0..TASKS {
        writeln!(matrix, "        - tenant-{i:06}").unwrap();
    }
    assert_eq!(read(&matrix).tasks[TASKS - 1].id.as_str(), "big-200000");

    let own: String = (0..TASKS).map(|i| format!("{{\"id\":\"t-{i}\",\"stages\":[]}},")).collect();
    read(&format!("{{\"tasks\":[{}]}}", own.trim_end_matches(',')));

    if let Some(peak) = peak_mib() {
        assert!(peak < 500, "{peak} MiB");
    }
}
