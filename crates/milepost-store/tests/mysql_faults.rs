//! What happens on the way to the server: nodes that freeze, connections that are cut, answers that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use milepost_core::time::Millis;
use milepost_store::{Beat, Letter, Membership, MysqlStore, Store, StoreError};
use mysql_async::prelude::Queryable;

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/given.rs"]
mod given;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/relay.rs"]
mod relay;
#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/mysql.rs"]
mod support;

use given::{claim, finish, ids, node, plan, submit};
use proxy::Proxy;
use relay::Relay;
use support::Database;

/// A database and a way to it that can be tampered with.
async fn given() -> Option<(Database, Proxy)> {
    let database = Database::create(&support::server()?).await;
    let proxy = Proxy::to(database.port()).await;
    Some((database, proxy))
}

async fn behind(proxy: &Proxy, database: &Database, name: &str) -> Arc<MysqlStore> {
    let url = database.url_at(proxy.port);
    Arc::new(MysqlStore::open(&url, Membership::node(name, support::unique("boot"))).await.unwrap())
}

#[tokio::test]
async fn a_node_that_freezes_inside_a_transaction_holds_up_the_others_for_seconds_only() {
    let Some((database, proxy)) = given().await else { return };
    let frozen = behind(&proxy, &database, "frozen").await;
    let other = node(&database, "other", Millis::from_secs(60)).await;
    submit(&other, plan("p", &[("t", None), ("u", None)], |settings| settings.max_concurrency = 2)).await;
    let held = claim(&frozen, "frozen", 1).await.unwrap().tasks.remove(0);
    proxy.hold("; COMMIT");
    let commit = tokio::spawn({
        let (store, commit) = (frozen.clone(), finish(&held));
        async move { store.commit(commit).await }
    });
    proxy.reached().await;
    let start = Instant::now();
    assert_eq!(ids(&claim(&other, "other", 1).await.unwrap()), ["u"]);
    // Its lease would be over only after a minute.
    assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
    proxy.release();
    // Its transaction was rolled back by then, and the outcome is for it to find out.
    let outcome = commit.await.unwrap();
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    assert_eq!(other.task(&held.key.id).await.unwrap().unwrap().task, held.task);
    frozen.commit(finish(&held)).await.unwrap();
}

#[tokio::test]
async fn a_node_that_freezes_while_it_opens_the_store_keeps_nobody_out() {
    let Some((database, proxy)) = given().await else { return };
    let _first = behind(&proxy, &database, "first").await;
    // Who stands still has a connection, and all the locks of it.
    let mut frozen = mysql_async::Conn::new(mysql_async::Opts::from_url(&database.url()).unwrap()).await.unwrap();
    let lock = "SELECT GET_LOCK(CONCAT('milepost.', LEFT(SHA1(DATABASE()), 40)), 0)";
    assert_eq!(frozen.query_first::<u8, _>(lock).await.unwrap(), Some(1));
    let start = Instant::now();
    let _second = behind(&proxy, &database, "second").await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    drop(frozen);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_out_by_its_version() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    proxy.cut_after("; COMMIT");
    let outcome = a.commit(finish(&held)).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    // Sent again, it hears that the first one had arrived.
    let again = a.commit(finish(&held)).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    let stored = a.task(&held.key.id).await.unwrap().unwrap();
    assert_eq!((stored.task.status(), stored.task.version()), (TaskStatus::Completed, finish(&held).task.version()));
}

#[tokio::test]
async fn a_letter_whose_answer_is_lost_is_posted_once() {
    let Some((database, proxy)) = given().await else { return };
    let (a, b) = (node(&database, "a", Millis::from_secs(15)).await, behind(&proxy, &database, "b").await);
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    proxy.cut_after("INSERT INTO milepost_letters");
    let letter = Letter { id: "one".to_owned(), task: held.key.id.clone(), body: "go".to_owned() };
    let no = b.post(letter.clone()).await.unwrap().expect("a live node holds it");
    let posted = a.letters().await.unwrap();
    assert_eq!(posted.iter().map(|posted| (posted.no, &posted.letter)).collect::<Vec<_>>(), [(no, &letter)]);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_comes_with_the_next() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    proxy.cut_after("COMMIT; SET SESSION");
    let outcome = claim(&a, "a", 1).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    assert!(claim(&a, "a", 1).await.unwrap().tasks.is_empty());
    a.commit(finish(&held)).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_is_committed_after_it_was_given_up_comes_with_the_next() {
    let Some(server) = support::server() else { return };
    let database = Database::create(&server).await;
    let relay = Relay::to(database.port()).await;
    let url = database.url_at(relay.port);
    let a = Arc::new(MysqlStore::open(&url, Membership::node("a", support::unique("boot"))).await.unwrap());
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let late = relay.hold_and_forget("COMMIT; SET SESSION");
    let outcome = claim(&a, "a", 1).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    // Whatever the next claim has asked without the lock, it has been answered when it asks for that.
    let next = relay.hold("FOR UPDATE");
    let claiming = tokio::spawn({
        let a = a.clone();
        async move { claim(&a, "a", 1).await }
    });
    next.reached().await;
    next.release();
    late.deliver().await;
    let held = claiming.await.unwrap().unwrap().tasks.remove(0);
    a.commit(finish(&held)).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_comes_with_the_next() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    proxy.hold("COMMIT; SET SESSION");
    let claiming = tokio::spawn({
        let a = a.clone();
        async move { claim(&a, "a", 1).await }
    });
    proxy.reached().await;
    claiming.abort();
    assert!(claiming.await.unwrap_err().is_cancelled());
    proxy.release();
    // One behind the other: it is answered when the claim before it has been.
    submit(&a, plan("q", &[("u", None)], |_| {})).await;
    let claimed = claim(&a, "a", 1).await.unwrap();
    assert_eq!(ids(&claimed), ["t"]);
    a.commit(finish(&claimed.tasks[0])).await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_away_is_used_again_when_it_is_back() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    proxy.cut();
    assert!(matches!(a.commit(finish(&held)).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(a.task(&held.key.id).await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(a.beat(Beat::default()).await, Err(StoreError::Unavailable { .. })));
    proxy.mend();
    assert_eq!(a.beat(Beat::default()).await.unwrap().losses, 0);
    a.commit(finish(&held)).await.unwrap();
    // A connection that died while nobody used it costs nobody an error.
    proxy.cut();
    proxy.mend();
    submit(&a, plan("q", &[("u", None)], |_| {})).await;
    assert!(a.task(&held.key.id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_row_that_was_changed_without_the_lock_keeps_the_whole_group_from_being_committed() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    submit(&a, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&a, "a", 1).await.unwrap().tasks.remove(0);
    proxy.hold("; COMMIT");
    let commit = tokio::spawn({
        let (store, commit) = (a.clone(), finish(&held));
        async move { store.commit(commit).await }
    });
    proxy.reached().await;
    // By a hand that knows nothing of ours.
    database.execute("UPDATE task_unit_runtimes SET lease = lease + 1").await;
    proxy.release();
    let outcome = commit.await.unwrap();
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    let events: Vec<u64> = database.ask("SELECT COUNT(*) FROM milepost_events WHERE task > 0").await;
    assert_eq!(events, [2], "its creation and its start");
    let again = a.commit(finish(&held)).await;
    assert!(matches!(again, Err(StoreError::Fenced { .. })), "{again:?}");
}

#[tokio::test]
async fn an_idle_node_asks_no_more_than_once_a_second() {
    let Some((database, proxy)) = given().await else { return };
    let a = behind(&proxy, &database, "a").await;
    let watched = a.clone();
    let watching = tokio::spawn(async move {
        loop {
            watched.called().await;
        }
    });
    // Connections are made once, and two questions may meet.
    let (one, other) = tokio::join!(a.nodes(), a.nodes());
    assert_eq!(one.unwrap(), other.unwrap());
    a.beat(Beat::default()).await.unwrap();
    let (before, seconds) = (proxy.commands(), 10);
    for _ in 0..seconds / 5 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        a.beat(Beat::default()).await.unwrap();
    }
    let asked = proxy.commands() - before;
    watching.abort();
    assert!(asked <= seconds && asked >= 4, "{asked} in {seconds} seconds");
}

/// Every change of a task's row is refused as a deadlock until this one.
async fn collide_until(database: &Database, change: u32) {
    database.execute(&format!("UPDATE changes SET count = {}", 1000 - change)).await;
}

async fn given_collisions(database: &Database) {
    // An engine without transactions: what it counted stays.
    database.execute("CREATE TABLE changes (count INT NOT NULL) ENGINE = MyISAM").await;
    database.execute("INSERT INTO changes VALUES (1000)").await;
    for change in ["INSERT", "UPDATE"] {
        database
            .execute(&format!(
                "CREATE TRIGGER collide_{change} BEFORE {change} ON task_unit_runtimes FOR EACH ROW BEGIN \
                 UPDATE changes SET count = count + 1; \
                 IF (SELECT count FROM changes) < 1000 THEN \
                 SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a collision'; END IF; END"
            ))
            .await;
    }
}

#[tokio::test]
async fn a_deadlock_with_another_transaction_is_tried_again_and_written_once() {
    let Some((database, _proxy)) = given().await else { return };
    let store = Arc::new(node(&database, "a", Millis::from_secs(60)).await);
    submit(&store, plan("p", &[("t", None)], |_| {})).await;
    let held = claim(&store, "a", 1).await.unwrap().tasks.remove(0);
    database.execute("CREATE TABLE weight (x INT) ENGINE = InnoDB").await;
    let mut other = mysql_async::Conn::from_url(database.url()).await.unwrap();
    // The server gives up the one of the two that has written less.
    let rows = vec!["(1)"; 1000].join(",");
    for sql in [
        "START TRANSACTION",
        &format!("INSERT INTO weight VALUES {rows}"),
        "UPDATE task_unit_runtimes SET lease = lease + 1",
    ] {
        other.query_drop(sql).await.unwrap();
    }
    let commit = tokio::spawn({
        let (store, commit) = (store.clone(), finish(&held));
        async move { store.commit(commit).await }
    });
    let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p \
                   ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'";
    let deadline = Instant::now() + Duration::from_secs(15);
    while database.ask::<u64>(waiting).await != [1] {
        assert!(Instant::now() < deadline, "the commit does not wait for the row");
        // Whoever looks at this table more often than every 100 ms is shown what it saw before.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    other.query_drop("SELECT * FROM milepost_counters FOR UPDATE").await.unwrap();
    assert!(!commit.is_finished(), "its lock is the other's now");
    other.query_drop("ROLLBACK").await.unwrap();
    commit.await.unwrap().unwrap();
    let stored = store.task(&held.key.id).await.unwrap().unwrap();
    assert_eq!((stored.task.status(), stored.task.version()), (TaskStatus::Completed, finish(&held).task.version()));
}

#[tokio::test]
async fn what_collides_is_tried_again_a_few_times_and_then_refused() {
    let Some((database, _proxy)) = given().await else { return };
    let store = node(&database, "a", Millis::from_secs(60)).await;
    given_collisions(&database).await;
    collide_until(&database, 4).await;
    submit(&store, plan("p", &[("t", None)], |_| {})).await;
    collide_until(&database, 4).await;
    let held = claim(&store, "a", 10).await.unwrap().tasks.remove(0);
    collide_until(&database, 500).await;
    let refused = store.commit(finish(&held)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    let tried = database.ask::<u32>("SELECT count FROM changes").await[0] - 500;
    assert!(tried < 20, "it is tried {tried} times");
    collide_until(&database, 4).await;
    store.commit(finish(&held)).await.unwrap();
    let stored = store.task(&held.key.id).await.unwrap().unwrap();
    assert_eq!((stored.task.status(), stored.task.version()), (TaskStatus::Completed, finish(&held).task.version()));
}
