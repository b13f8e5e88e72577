//! All kinds of messages at once, while a node is killed and the broker is restarted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use rustix::process::Signal;
use serde_json::Value;

use crate::files::Files;
use crate::judge::{self, Story};
use crate::mix::{self, Fate, Mix};
use crate::node::Node;
use crate::place::block_on;
use crate::seed::Dice;
use crate::support::{PATIENCE, wait_for};
use crate::topics::{Record, Site};

/// How many tasks; MILEPOST_TEST_TASKS asks for more or fewer.
fn size() -> usize {
    std::env::var("MILEPOST_TEST_TASKS").ok().and_then(|tasks| tasks.parse().ok()).unwrap_or(1000)
}

#[test]
fn a_thousand_messages_from_a_python_client_with_two_nodes_a_kill_and_a_broker_restart() {
    let test = "a_thousand_messages_from_a_python_client_with_two_nodes_a_kill_and_a_broker_restart";
    let chains = mix::chains();
    let chains: Vec<(&str, &str)> = chains.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let Some(site) = Site::new(test, "partitions = 4\npatience = '2s'", &chains) else { return };
    let files = Files::serve();
    let mix = Mix::new(size(), &files, &mut Dice::of(test));
    let started = mix.with(|fate| fate != Fate::Expires).len();

    let a = Node::start(&site.world, &site.place, "a", &[]);
    let b = Node::start(&site.world, &site.place, "b", &[]);
    let begun = Instant::now();
    site.topics.publish(&mix.records);
    // Files fetched tell how many tasks have been begun.
    wait_long("half of the tasks to begin", &b, || files.fetched_in_all() >= started / 2);
    kill_at_work(&site, &mix, a);
    wait_long("more tasks to begin without it", &b, || files.fetched_in_all() >= started * 5 / 8);
    site.topics.restart_broker();
    let a = Node::start(&site.world, &site.place, "a", &[]);
    wait_for_the_end(&site, &mix, &b);
    let took = begun.elapsed();

    let stories = stories(&site, &mix);
    let interrupted = stories.iter().filter(|story| story.interrupted > 0).count();
    let repeated: usize = stories.iter().map(|story| story.repeated).sum();
    for (task, story) in mix.tasks.keys().zip(&stories) {
        check_files(&files, task, story);
    }
    assert!(interrupted > 0, "the node that was killed had something in hand");
    check_dead_letters(&site, &mix, &b);
    check_outcomes(&site, &mix);
    wait_for("all offsets to be committed", || site.topics.is_all_committed().then_some(()));
    eprintln!(
        "{} messages for {} tasks in {took:.1?}: {interrupted} tasks interrupted, {repeated} stages repeated, {} files \
         fetched for {started} tasks, {} dead letters, offsets {:?}",
        mix.records.len(),
        mix.tasks.len(),
        files.fetched_in_all(),
        mix.dead_letters.len(),
        site.topics.offsets(),
    );
    a.stop();
    b.stop();
}

/// In the middle of something: frozen, it cannot finish what it is seen to have.
fn kill_at_work(site: &Site, mix: &Mix, node: Node) {
    let works = async || {
        let store = judge::open(&site.place).await;
        for task in mix.tasks.keys() {
            if judge::is_running_on(&*store, task, "a").await {
                return true;
            }
        }
        false
    };
    // It has stages in hand most of the time, while there is something to do.
    for _ in 0..2000 {
        node.signal(Signal::STOP);
        if block_on(works()) {
            return node.kill();
        }
        node.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("node a never had anything to do:\n{}", node.said());
}

#[track_caller]
fn wait_long(what: &str, node: &Node, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}; a node says\n{}", node.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_the_end(site: &Site, mix: &Mix, node: &Node) {
    block_on(async {
        let store = judge::open(&site.place).await;
        for task in mix.tasks.keys() {
            // Each has its own: as long as tasks end, it goes on.
            let deadline = Instant::now() + PATIENCE;
            loop {
                let status = judge::status(&*store, task).await;
                if status.is_some_and(TaskStatus::is_ended) {
                    break;
                }
                assert!(Instant::now() < deadline, "{task} is {status:?}; a node says\n{}", node.said());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
}

/// Each task has had its fate, once.
fn stories(site: &Site, mix: &Mix) -> Vec<Story> {
    block_on(async {
        let store = judge::open(&site.place).await;
        let mut stories = Vec::with_capacity(mix.tasks.len());
        for (task, fate) in &mix.tasks {
            let story = judge::story(&*store, &site.world, task).await;
            let (status, completed, failed): (_, &[&str], &[&str]) = match fate {
                Fate::Completes | Fate::CompletesOnSecondTry => (TaskStatus::Completed, &["s1", "s2", "s3"], &[]),
                Fate::Fails => (TaskStatus::Failed, &["s1"], &["s2"]),
                Fate::Expires => (TaskStatus::Failed, &[], &[]),
            };
            assert_eq!(story.status, Some(status), "{task}: {story:?}");
            assert!(story.completed.iter().eq(completed.iter().copied()), "{task}: {story:?}");
            if *fate == Fate::CompletesOnSecondTry {
                assert!(story.failed.contains("s2") || story.interrupted > 0, "{task}: {story:?}");
            } else {
                assert!(story.failed.iter().eq(failed.iter().copied()), "{task}: {story:?}");
            }
            stories.push(story);
        }
        stories
    })
}

/// Fetched by each process that had the task, once at most, and by none that had nothing to do with it.
fn check_files(files: &Files, task: &str, story: &Story) {
    let fetched = files.fetched(task);
    let holders = if story.ran.is_empty() { 0 } else { 1 + story.interrupted };
    assert!(fetched <= holders, "the file of {task} was fetched {fetched} times: {story:?}");
    assert!(fetched >= usize::from(!story.ran.is_empty()), "the file of {task} was never fetched: {story:?}");
}

/// In the store, as its command line lists them, and on their topic.
fn check_dead_letters(site: &Site, mix: &Mix, node: &Node) {
    let listed = wait_for("all dead letters to be in the store", || {
        let listed = listed(site, node);
        (listed.len() >= mix.dead_letters.len()).then_some(listed)
    });
    assert_eq!(listed.len(), mix.dead_letters.len(), "there are more dead letters than there should be");
    let texts: BTreeSet<String> = listed.iter().map(|letter| text(letter, "originalMessage")).collect();
    assert_eq!(texts, mix.dead_letters);
    for letter in &listed {
        let task = letter["taskId"].as_str().unwrap_or_default();
        let why = (text(letter, "errorType"), letter["failedStage"].as_str());
        match mix.tasks.get(task) {
            Some(Fate::Expires) => assert_eq!(why, ("EXPIRED".to_owned(), None), "{letter}"),
            Some(Fate::Fails) => assert_eq!(why.1, Some("s2"), "{letter}"),
            Some(Fate::Completes | Fate::CompletesOnSecondTry) => panic!("{task} has completed: {letter}"),
            None => assert_eq!(why, ("VALIDATION".to_owned(), None), "{letter}"),
        }
    }
    let published = wait_for("all dead letters to be on their topic", || {
        let published = distinct(site.topics.read(&site.topics.dead_letters));
        (published.len() >= listed.len()).then_some(published)
    });
    assert_eq!(published.len(), listed.len());
    let texts: BTreeSet<String> = published.iter().map(|record| text(&record.value, "originalMessage")).collect();
    assert_eq!(texts, mix.dead_letters);
}

fn listed(site: &Site, node: &Node) -> Vec<Value> {
    let (mut letters, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["dead-letters", "--limit", "50", "--server", &node.server];
        arguments.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor.as_str()]));
        let page = site.world.json(&arguments);
        letters.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return letters,
        }
    }
}

/// Every task's end is told at least once, to the right topic, and nothing else is.
fn check_outcomes(site: &Site, mix: &Mix) {
    let completes = mix.with(|fate| matches!(fate, Fate::Completes | Fate::CompletesOnSecondTry));
    let fails = mix.with(|fate| matches!(fate, Fate::Fails | Fate::Expires));
    for (topic, status, expected) in
        [(&site.topics.completed, "COMPLETED", completes), (&site.topics.failed, "FAILED", fails)]
    {
        let records = wait_for("all outcomes to be published", || {
            let records = distinct(site.topics.read(topic));
            (records.len() >= expected.len()).then_some(records)
        });
        assert_eq!(records.len(), expected.len(), "a task has ended {status} more than once");
        for record in &records {
            assert_eq!(record.value["status"], status);
            assert_eq!(record.key.as_deref(), record.value["taskId"].as_str());
        }
        let told: BTreeSet<String> = records.iter().map(|record| text(&record.value, "taskId")).collect();
        assert_eq!(told, expected);
    }
}

/// What was published again, after a crash or while the broker was away, counts once.
fn distinct(records: Vec<Record>) -> Vec<Record> {
    let mut seen = BTreeSet::new();
    records.into_iter().filter(|record| seen.insert(record.entry.clone())).collect()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
