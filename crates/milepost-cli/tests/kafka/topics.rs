//! A test's own topics and group, seen through a Kafka client that is not ours.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Backend, Place, is_ours, service};
use crate::support::World;

const VARIABLE: &str = "MILEPOST_TEST_KAFKA";

/// Everything a test has to itself: topics, a group, a store, and a folder.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) place: Place,
    pub(crate) topics: Topics,
}

pub(crate) struct Topics {
    brokers: String,
    pub(crate) tasks: String,
    pub(crate) dead_letters: String,
    pub(crate) completed: String,
    pub(crate) failed: String,
    group: String,
}

/// What another program reads.
pub(crate) struct Record {
    pub(crate) key: Option<String>,
    pub(crate) value: Value,
    /// The same when Milepost had to publish the same thing again.
    pub(crate) entry: String,
}

impl Site {
    /// With a configuration that names these chains. None without a broker or a store, which is said loudly.
    pub(crate) fn new(test: &str, settings: &str, chains: &[(&str, &str)]) -> Option<Self> {
        let topics = Topics::new(test)?;
        let place = Backend::Postgres.place(test)?;
        let world = World::new();
        let Topics { brokers, tasks, completed, failed, group, .. } = &topics;
        let mut config = format!(
            "[kafka]\nbrokers = '{brokers}'\ntopic = '{tasks}'\ngroup = '{group}'\n\
             completed_topic = '{completed}'\nfailed_topic = '{failed}'\n{settings}\n[kafka.chains]\n"
        );
        for (name, chain) in chains {
            world.file(&format!("{name}.yaml"), chain);
            config.push_str(&format!("{name} = '{name}.yaml'\n"));
        }
        world.file("milepost.toml", &config);
        Some(Self { world, place, topics })
    }
}

impl Topics {
    fn new(test: &str) -> Option<Self> {
        let Some(brokers) = std::env::var(VARIABLE).ok().filter(|brokers| !brokers.is_empty()) else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{VARIABLE} is not set: {test} cannot be left out");
            eprintln!("SKIPPED {test}: {VARIABLE} is not set; `./dev/services up kafka` starts a broker and says how");
            return None;
        };
        let own = uuid::Uuid::now_v7().simple().to_string();
        Some(Self {
            brokers,
            tasks: format!("tasks-{own}"),
            dead_letters: format!("tasks-{own}-dlt"),
            completed: format!("completed-{own}"),
            failed: format!("failed-{own}"),
            group: format!("group-{own}"),
        })
    }

    /// In this order, each with its key. Returns when the broker has all of them.
    pub(crate) fn publish(&self, records: &[(Option<String>, Vec<u8>)]) {
        let lines: String = records
            .iter()
            .map(|(key, value)| format!("{}\n", serde_json::json!({ "key": key, "value": hex(value) })))
            .collect();
        let published = self.client(&["publish", &self.brokers, &self.tasks], &lines);
        assert_eq!(published.trim(), records.len().to_string());
    }

    pub(crate) fn publish_message(&self, message: &Value) {
        let key = message["taskId"].as_str().map(str::to_owned);
        self.publish(&[(key, message.to_string().into_bytes())]);
    }

    pub(crate) fn read(&self, topic: &str) -> Vec<Record> {
        let records = self.client(&["read", &self.brokers, topic], "");
        records.lines().map(Record::of).collect()
    }

    /// What the group has acknowledged and where the partition ends, for each partition.
    pub(crate) fn offsets(&self) -> Vec<(i64, i64)> {
        let answer = self.client(&["offsets", &self.brokers, &self.tasks, &self.group], "");
        let all: Vec<(Option<i64>, i64)> = serde_json::from_str(&answer).unwrap();
        all.into_iter().map(|(committed, end)| (committed.unwrap_or(0), end)).collect()
    }

    pub(crate) fn is_all_committed(&self) -> bool {
        self.offsets().iter().all(|(committed, end)| committed == end)
    }

    /// The group's state, and the id that the broker has given to each node; a node that joins anew gets a new one.
    pub(crate) fn members(&self) -> Value {
        serde_json::from_str(&self.client(&["members", &self.brokers, &self.group], "")).unwrap()
    }

    /// Ends the broker and starts it again, on the same port and with what it had.
    pub(crate) fn restart_broker(&self) {
        assert!(is_ours("kafka", VARIABLE), "the broker is not one of dev/services, and may not be stopped");
        service("restart", "kafka");
    }

    fn client(&self, arguments: &[&str], input: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/client.py");
        let mut client = Command::new(root.join("dev/python-kafka"))
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It reads all of it before it says anything that could fill the other pipes.
        client.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = client.wait_with_output().unwrap();
        assert!(done.status.success(), "client.py {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }
}

impl Record {
    fn of(line: &str) -> Self {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let value = record["value"].take();
        Self {
            key: record["key"].as_str().map(str::to_owned),
            value: serde_json::from_str(value.as_str().unwrap()).expect("what Milepost publishes is JSON"),
            entry: record["headers"]["milepost-entry"].as_str().expect("the entry that it was").to_owned(),
        }
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.value[field].as_str().unwrap_or_default()
    }
}

/// Messages need not be text.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
