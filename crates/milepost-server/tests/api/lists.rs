//! Lists: page by page, filtered, and with nothing left out or twice.

use serde_json::Value;

use crate::support::World;

async fn submit_many(world: &World, count: usize) {
    for n in 0..count {
        world
            .submit("/plans", &format!("plan: p{n}\nstages: [{{ name: s, uses: noop }}]\ntasks: [{{ id: t{n} }}]\n"))
            .await;
    }
}

fn ids(list: &Value, key: &str) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item[key].as_str().expect("an id").to_owned()).collect()
}

/// Every page, one after the other.
async fn all(world: &World, path: &str, key: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let list = world.read(&format!("{path}{cursor}")).await;
        pages.push(ids(&list, key));
        match list["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn plans_are_listed_newest_first_page_by_page() {
    let world = World::new().await;
    submit_many(&world, 5).await;
    assert_eq!(all(&world, "/plans?limit=2", "planId").await, [vec!["p4", "p3"], vec!["p2", "p1"], vec!["p0"]]);
    world.post("/plans/p1/cancel").await;
    world.until_ended("p1").await;
    assert_eq!(all(&world, "/plans?open=true&limit=500", "planId").await, [["p4", "p3", "p2", "p0"]]);
    assert_eq!(ids(&world.read("/plans").await, "planId").len(), 5);
    world.close().await;
}

#[tokio::test]
async fn tasks_of_a_plan_are_listed_in_full_in_its_order_and_by_status() {
    let world = World::new().await;
    let plan = "plan: p\nstages: [{ name: s, uses: step }]\ntasks: [{ id: c }, { id: a }, { id: b }]\n";
    world.submit("/plans", plan).await;
    assert_eq!(all(&world, "/plans/p/tasks?limit=2", "taskId").await, [vec!["c", "a"], vec!["b"]]);
    let list = world.read("/plans/p/tasks?limit=1").await;
    assert_eq!(list["items"][0], world.read("/tasks/c").await);
    world.post("/tasks/a/cancel").await;
    assert_eq!(ids(&world.read("/plans/p/tasks?status=CANCELLED").await, "taskId"), ["a"]);
    assert_eq!(ids(&world.read("/plans/p/tasks?status=cancelled").await, "taskId"), ["a"], "small letters will do");
    assert_eq!(ids(&world.read("/plans/p/tasks?status=CANCELLED,PENDING").await, "taskId").len(), 3);
    assert_eq!(ids(&world.read("/plans/p/tasks?status=CANCELLED&status=PENDING").await, "taskId").len(), 3);
    world.get("/plans/q/tasks").await.problem(404, "not-found");
    world.close().await;
}

#[tokio::test]
async fn events_go_on_after_the_last_of_the_page_before() {
    let world = World::new().await;
    world.submit("/plans?start=true", "plan: p\nstages: [{ name: s, uses: step }]\ntasks: [{ id: a }]\n").await;
    world.until_ended("p").await;
    let whole = world.read("/tasks/a/events").await;
    assert_eq!(whole["nextCursor"], Value::Null);
    let mut read = Vec::new();
    let mut after = "0".to_owned();
    loop {
        let page = world.read(&format!("/tasks/a/events?limit=2&after={after}")).await;
        read.extend(page["items"].as_array().expect("items").clone());
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    assert_eq!(Value::from(read), whole["items"]);
    let first = world.read("/tasks/a/events?attempt=1").await;
    assert!(first["items"].as_array().expect("items").iter().all(|event| event["attemptNumber"] == 1), "{first}");
    assert_eq!(world.read("/tasks/a/events?attempt=7").await["items"], serde_json::json!([]));
    world.close().await;
}
