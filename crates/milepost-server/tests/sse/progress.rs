//! How far things are: often enough to watch, and not more often.

use std::time::Instant;

use crate::support::{World, progress_of};

#[tokio::test]
async fn progress_of_a_task_comes_at_most_four_times_a_second_however_many_stages_report() {
    let world = World::new().await;
    let began = Instant::now();
    let stages =
        "[{name: a, uses: talks, needs: []}, {name: b, uses: talks, needs: []}, {name: c, uses: talks, needs: []}]";
    world.submit(&format!("{{plan: p, stages: {stages}, tasks: [{{id: t}}]}}")).await;
    let events = world.watch("plans/p").await.rest().await;
    let most = began.elapsed().as_millis() / 250 + 1;
    let percents: Vec<f64> = progress_of(&events, "t").iter().map(|task| task["percent"].as_f64().unwrap()).collect();
    assert!(!percents.is_empty() && percents.len() as u128 <= most, "{} of {most}", percents.len());
    assert!(percents.is_sorted(), "{percents:?}");
    let counts = events.iter().filter(|event| event.name == "progress" && event.data["tasks"].is_object()).count();
    assert!(counts as u128 <= most, "{counts} of {most}");
    world.close().await;
}

#[tokio::test]
async fn a_retry_shows_the_checkpoints_progress_exactly_once() {
    let world = World::new().await;
    world
        .submit(
            "{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: fails-once}], \
             tasks: [{id: t}, {id: other, stages: [{name: g, uses: gate}]}]}",
        )
        .await;
    let mut client = world.watch_after("plans/p", Some(0)).await;
    loop {
        let event = client.next().await.unwrap();
        if event.data["events"].as_array().is_some_and(|all| all.iter().any(|e| e["eventType"] == "TASK_FAILED")) {
            break;
        }
    }
    world.retry("t").await;
    let mut events = Vec::new();
    while progress_of(&events, "t").is_empty() {
        events.push(client.next().await.unwrap());
    }
    world.gate.open();
    events.extend(client.rest().await);
    let shown = progress_of(&events, "t");
    assert_eq!(shown.len(), 1, "{shown:?}");
    let (done, total) = (&shown[0]["completedStages"], &shown[0]["totalStages"]);
    assert!(done.as_u64() >= Some(1) && *total == 2, "{shown:?}");
    world.close().await;
}
