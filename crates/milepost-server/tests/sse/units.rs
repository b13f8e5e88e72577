//! Units that say how far they are: their pace, what a pause leaves of it, and how soon a client knows.

use std::time::{Duration, Instant};

use milepost_engine::Verb;
use serde_json::{Value, json};

use crate::support::{Client, Event, World};

fn plan(rows: u64, stays_at: u64, tasks: &str) -> String {
    format!(
        "{{plan: p, max_concurrency: 2, stages: [{{name: copy, uses: copies, with: {{rows: {rows}, stays_at: {stays_at}}}}}], tasks: [{tasks}]}}"
    )
}

/// Waits for progress that is as wanted.
async fn until(client: &mut Client, wanted: impl Fn(&Value) -> bool) -> Event {
    loop {
        let event = client.next().await.expect("the stream goes on");
        if event.name == "progress" && wanted(&event.data) {
            return event;
        }
    }
}

#[tokio::test]
async fn a_paused_unit_is_as_far_as_it_was_until_it_is_resumed_and_then_begins_at_zero() {
    let world = World::new().await;
    world.submit(&plan(1_000, 500, "{id: a}")).await;
    let mut client = world.watch("plans/p").await;
    until(&mut client, |data| data["task"]["percent"] == 50.0).await;
    world.operate("p", Verb::Pause).await;
    let task = world.read("tasks/a").await;
    assert_eq!((&task["status"], &task["percent"]), (&json!("PAUSED"), &json!(50.0)));
    assert_eq!(task["progress"], json!({"done": 500, "total": 1000}));
    let snapshot = world.watch("plans/p").await.next().await.unwrap();
    let shown = &snapshot.data["tasks"][0];
    assert_eq!((&shown["status"], &shown["percent"], &shown["done"]), (&json!("PAUSED"), &json!(50.0), &json!(500)));

    world.operate("p", Verb::Resume).await;
    let goes_on = until(&mut client, |data| data["task"]["status"] == "RUNNING").await;
    assert_eq!(goes_on.data["task"]["percent"], 0.0, "{}", goes_on.data);
    let mut percents = vec![0.0];
    while percents.last() < Some(&50.0) {
        let event = until(&mut client, |data| data["task"].is_object()).await;
        percents.push(event.data["task"]["percent"].as_f64().unwrap());
    }
    assert!(percents.is_sorted(), "{percents:?}");
    world.close().await;
}

#[tokio::test]
async fn units_and_their_plan_have_a_rate_and_say_when_they_will_be_done() {
    let world = World::new().await;
    world.submit(&plan(1_000_000, 0, "{id: a}, {id: b}").replace("stays_at: 0", "stays_at: 1")).await;
    let mut client = world.watch("plans/p").await;
    let task = until(&mut client, |data| data["task"]["etaSeconds"].is_u64()).await.data["task"].clone();
    // At most 5,000 a second; a busy machine makes it slower.
    let (rate, eta) = (task["rate"].as_f64().unwrap(), task["etaSeconds"].as_u64().unwrap());
    assert!(rate > 0.0 && rate <= 6_000.0, "{task}");
    let left = (1_000_000 - task["done"].as_u64().unwrap()) as f64;
    assert!((eta as f64 - left / rate).abs() <= left / rate * 0.01 + 1.0, "{task}");
    let of_plan = until(&mut client, |data| data["tasks"].is_object() && data["rate"].is_f64()).await;
    assert!(of_plan.data["etaSeconds"].as_u64().is_some(), "{}", of_plan.data);

    let reading = world.read("plans/p/progress").await;
    let running = reading["running"].as_array().unwrap();
    let sum: f64 = running.iter().map(|task| task["rate"].as_f64().unwrap()).sum();
    assert_eq!((running.len(), reading["rate"].as_f64()), (2, Some(sum)));
    assert!(reading["etaSeconds"].as_u64().is_some(), "{reading}");
    let snapshot = world.watch("plans/p").await.next().await.unwrap();
    assert!(snapshot.data["rate"].is_f64() && snapshot.data["tasks"][0]["rate"].is_f64(), "{}", snapshot.data);
    world.operate("p", Verb::Cancel).await;
    world.close().await;
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a delay depends on the machine: it is shown, and nothing is judged by it")]
async fn a_client_hears_of_every_batch_by_itself_or_with_a_later_one() {
    let world = World::new().await;
    world.submit(&plan(15_000, 1, "{id: a}")).await;
    let mut client = world.watch("plans/p").await;
    let mut heard: Vec<(u64, Instant)> = Vec::new();
    while let Some(event) = client.next().await {
        let done = event.data["task"]["done"].as_u64().filter(|_| event.name == "progress");
        heard.extend(done.map(|done| (done, Instant::now())));
    }
    assert_eq!(heard.last().map(|(done, _)| *done), Some(15_000), "the last word is never lost");
    // A batch is known when it or a later one is shown.
    let known = |rows: u64| heard.iter().find(|(done, _)| *done >= rows).expect("the last one is shown").1;
    let committed = world.copies.committed();
    let mut delays: Vec<Duration> = committed.iter().map(|(rows, at)| known(*rows).duration_since(*at)).collect();
    delays.sort();
    let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!("from batch to client: {} batches, median {median:?}, most {most:?}", delays.len());
    world.close().await;
}
