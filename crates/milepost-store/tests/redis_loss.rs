//! When Redis cannot be reached, or its answers are lost: nothing is lost with them, and nothing is done twice.

#[path = "support/patience.rs"]
mod patience;
mod redis_server;
#[path = "support/relay.rs"]
mod relay;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::task::PlanStatus;
use milepost_store::{Beat, Membership, RedisStore, Store, StoreError};
use patience::PATIENCE;
use redis_server::given::{
    claim, claim_one, decision, does, many, plan, plan_id, submit, success, task_id, try_claim, try_does, until,
};
use redis_server::proxy::Proxy;
use redis_server::{Place, is_missing};
use relay::{Relay, port_of};

async fn through_a_proxy() -> (Place, Proxy) {
    let mut place = Place::new();
    let address = place.url.split(['/', '?']).nth(2).and_then(|authority| authority.rsplit('@').next());
    let address = address.expect("a URL names a server").to_owned();
    let proxy = Proxy::to(address.clone()).await;
    place.url = place.url.replacen(&address, &proxy.address, 1);
    (place, proxy)
}

#[tokio::test]
async fn a_store_that_goes_away_says_so_and_goes_on_when_it_is_back() {
    if is_missing() {
        return;
    }
    let (place, proxy) = through_a_proxy().await;
    let store = place.node("a").await;
    submit(&store, plan("p", &[("t", None)])).await;
    let held = claim_one(&store).await;
    proxy.close();
    let commit = decision(&held, success(0));
    for _ in 0..3 {
        let away = store.commit(commit.clone()).await;
        assert!(matches!(away, Err(StoreError::Unavailable { .. })), "{away:?}");
    }
    assert!(store.beat(Beat::default()).await.is_err());
    assert!(store.task(&task_id("t")).await.is_err());
    proxy.open();
    store.commit(commit).await.unwrap();
    assert_eq!(store.beat(Beat::default()).await.unwrap().losses, 0);
    store.called().await;
    let visitor = place.visitor().await;
    submit(&visitor, plan("q", &[("u", None)])).await;
    tokio::time::timeout(PATIENCE, store.called()).await.expect("the node is called again");
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_a_conflict_when_it_is_sent_again() {
    if is_missing() {
        return;
    }
    let (place, proxy) = through_a_proxy().await;
    let store = place.node("a").await;
    submit(&store, plan("p", &[("t", None)])).await;
    let held = claim_one(&store).await;
    let commit = decision(&held, success(0));
    proxy.lose_answers();
    assert!(matches!(store.commit(commit.clone()).await, Err(StoreError::Unavailable { .. })));
    proxy.open();
    let again = store.commit(commit.clone()).await;
    let version = commit.task.version();
    assert!(matches!(again, Err(StoreError::Conflict { found, .. }) if found == version), "{again:?}");
}

#[tokio::test]
async fn tasks_of_a_claim_whose_answer_was_lost_come_with_the_next_one() {
    if is_missing() {
        return;
    }
    let (place, proxy) = through_a_proxy().await;
    let store = place.node("a").await;
    submit(&store, plan("p", &[("t", None), ("u", None), ("v", None)])).await;
    // A claim asks twice; sooner or later it is the second answer that is lost.
    let mut found = Vec::new();
    for delay in 0..60 {
        let claiming = try_claim(&store, 2);
        let losing = async {
            tokio::time::sleep(Duration::from_micros(delay * 100)).await;
            proxy.lose_answers();
        };
        let (claimed, ()) = tokio::join!(claiming, losing);
        proxy.open();
        match claimed {
            Ok(tasks) => found.extend(tasks),
            Err(error) => assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}"),
        }
    }
    found.extend(claim(&store, 10).await);
    let mut names: Vec<&str> = found.iter().map(|task| task.key.id.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["t", "u", "v"], "each came, and came once");
    for task in &found {
        let task = does(&store, task, success(0)).await;
        does(&store, &task, success(1)).await;
    }
}

#[tokio::test]
async fn a_claim_that_arrives_after_it_was_given_up_takes_nothing() {
    if is_missing() {
        return;
    }
    let mut place = Place::new();
    let port = port_of(&place.url);
    let relay = Relay::to(port).await;
    place.url = relay.url(&place.url, port);
    let store = Arc::new(place.node("a").await);
    // From now on the server knows the scripts by name.
    submit(&store, plan("known", &[("first", None)])).await;
    claim_one(&store).await;
    submit(&store, plan("p", &[("t", None)])).await;
    let late = relay.hold_and_forget("TASK_STARTED");
    let lost = try_claim(&store, 1).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    // The next claim has found that it had not arrived, and is about to take the task itself.
    let next = relay.hold("TASK_STARTED");
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { try_claim(&store, 1).await }
    });
    next.reached().await;
    late.deliver().await;
    next.release();
    let held = claiming.await.unwrap().unwrap().remove(0);
    does(&store, &held, success(0)).await;
}

/// A server of its own that keeps what it acknowledges.
struct Server {
    process: std::process::Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        Self { process: Self::run(&folder, port), folder, port }
    }

    fn run(folder: &tempfile::TempDir, port: u16) -> std::process::Child {
        let settings = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--port"];
        let mut command = std::process::Command::new("redis-server");
        command.args(settings).arg(port.to_string()).arg("--dir").arg(folder.path());
        command.stdout(std::process::Stdio::null()).spawn().expect("redis-server is installed")
    }

    /// As when it crashes, and comes back.
    fn kill_and_start_again(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Self::run(&self.folder, self.port);
    }

    async fn open(&self) -> RedisStore {
        let url = format!("redis://127.0.0.1:{}", self.port);
        until("the server to start", || async { RedisStore::open(&url, Membership::node("a", "boot")).await.ok() })
            .await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_the_server_was_killed_and_all_goes_on() {
    if is_missing() {
        return;
    }
    let mut server = Server::start();
    let store = server.open().await;
    submit(&store, many("p", 40)).await;
    let mut held = claim(&store, 40).await;
    let (before, after) = held.split_at_mut(20);
    for task in before.iter_mut() {
        *task = does(&store, task, success(0)).await;
    }
    server.kill_and_start_again();
    for task in after.iter_mut() {
        *task =
            until("the server to be back", || async { Some(try_does(&store, task, success(0)).await.ok()?.0) }).await;
    }
    for task in &held {
        let stored = store.task(&task.key.id).await.unwrap().unwrap();
        assert_eq!((&stored.task, stored.epoch), (&task.task, task.epoch));
        does(&store, task, success(1)).await;
    }
    let plan = store.plan(&plan_id("p")).await.unwrap().unwrap();
    assert_eq!(plan.status, PlanStatus::Completed);
}
