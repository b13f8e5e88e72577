//! Why a task is not running, as the API answers it.

use milepost_core::task::{StageStatus, TaskStatus};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::World;

#[tokio::test]
async fn one_that_waits_for_its_tenant_is_told_who_holds_it_and_since_when() {
    let world = World::new().await;
    world.steps.hold("a/s");
    let plan = "plan: p\nstages: [{ name: s, uses: step }]\ntasks: [{ id: a, tenant: x }, { id: b, tenant: x }]\n";
    world.submit("/plans?start=true", plan).await;
    world.steps.called("a/s").await;
    let why = world.read("/tasks/b/explain").await;
    assert_eq!((&why["status"], &why["reason"]), (&json!("PENDING"), &json!("TENANT_LOCKED")));
    assert_eq!((&why["data"]["heldBy"], &why["data"]["tenantId"]), (&json!("p:a"), &json!("x")));
    assert_eq!(why["data"]["since"], world.read("/tenants/x/lock").await["since"]);
    let message = why["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("its tenant x is held by p:a since "), "{message}");
    assert_eq!(world.read("/tasks/b").await["blockedBy"], "p:a");
    let holder = world.read("/tasks/a/explain").await;
    assert_eq!((&holder["reason"], &holder["data"]["stage"]), (&json!("RUNNING"), &json!("s")));
    world.steps.let_go("a/s");
    world.until_ended("p").await;
    assert_eq!(world.read("/tasks/b/explain").await["reason"], "ENDED");
    world.close().await;
}

#[tokio::test]
async fn one_that_waits_for_a_retry_is_told_when_it_comes_and_what_went_wrong() {
    let world = World::new().await;
    world.steps.stumble("a/s");
    let retry = "{ max_attempts: 4, strategy: fixed, base: 1h, jitter: false, max: 1h }";
    world
        .submit(
            "/plans?start=true",
            &format!("plan: p\nstages: [{{ name: s, uses: step, retry: {retry} }}]\ntasks: [{{ id: a }}]\n"),
        )
        .await;
    world.until("a", |task| task.stages().any(|(_, state)| state.status == StageStatus::RetryWait)).await;
    let why = world.read("/tasks/a/explain").await;
    assert_eq!((&why["status"], &why["reason"]), (&json!("RUNNING"), &json!("RETRY_WAIT")));
    let data = &why["data"];
    assert_eq!((&data["stage"], &data["attempt"], &data["maxAttempts"]), (&json!("s"), &json!(2), &json!(4)));
    assert_eq!((&data["errorType"], &data["lastError"]), (&json!("NETWORK"), &json!("told to stumble")));
    // The log says the same: when it was put off, and for how long.
    let events = world.read("/tasks/a/events").await;
    let put_off =
        events["items"].as_array().into_iter().flatten().find(|event| event["eventType"] == "RETRY_SCHEDULED");
    let put_off = put_off.expect("a retry in the log");
    assert_eq!((&put_off["backoffDelayMs"], &put_off["attemptNumber"]), (&json!(3_600_000), &data["attempt"]));
    let due: milepost_core::time::Timestamp = data["dueAt"].as_str().expect("an instant").parse().expect("an instant");
    let from: milepost_core::time::Timestamp =
        put_off["timestamp"].as_str().expect("an instant").parse().expect("an instant");
    assert_eq!(due.as_millis() - from.as_millis(), 3_600_000);
    world.close().await;
}

#[tokio::test]
async fn one_that_was_paused_is_told_by_whom_and_why_and_what_lets_it_go_on() {
    let world = World::new().await;
    let made = world.post_json("/tokens", &json!({ "name": "ops", "scope": "operate" })).await;
    let secret = made.expect(StatusCode::CREATED)["secret"].as_str().expect("a secret").to_owned();
    let pause = async |path: &str, reason: &str| -> Value {
        let request = world.request(Method::POST, path).bearer_auth(&secret).json(&json!({ "reason": reason }));
        world.send(request).await.expect(StatusCode::OK)
    };
    world.steps.hold("a/one");
    let plan = "plan: p\nmax_concurrency: 1\nstages: [{ name: one, uses: step }, { name: two, uses: step }]\ntasks: [{ id: a }, { id: b }]\n";
    world.submit("/plans?start=true", plan).await;
    world.steps.called("a/one").await;
    assert_eq!(world.read("/tasks/b/explain").await["reason"], "NO_SLOT");

    // The running stage ends first.
    pause("/api/v1/tasks/a/pause", "lunch").await;
    let why = world.read("/tasks/a/explain").await;
    assert_eq!(
        (&why["reason"], &why["data"]["by"], &why["data"]["why"]),
        (&json!("PAUSING"), &json!("ops"), &json!("lunch"))
    );
    // And its plan with it, before that task leaves its slot to the other.
    pause("/api/v1/plans/p/pause", "supper").await;
    world.steps.let_go("a/one");
    world.until_status("a", TaskStatus::Paused).await;
    let why = world.read("/tasks/a/explain").await;
    assert_eq!((&why["reason"], &why["data"]["by"]), (&json!("PAUSED"), &json!("ops")));
    assert_eq!((&why["message"], &why["next"]), (&json!("it was paused by ops: lunch"), &json!("milepost resume p")));
    let why = world.read("/tasks/b/explain").await;
    assert_eq!(
        (&why["reason"], &why["message"]),
        (&json!("PLAN_PAUSED"), &json!("its plan p was paused by ops: supper"))
    );
    world.get("/tasks/none/explain").await.problem(404, "not-found");
    world.close().await;
}
