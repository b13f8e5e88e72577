//! Transactions that the server gives up because of another's: tried again a few times, and written once.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{By, PlanStatus, TaskStatus};
use milepost_store::postgres::PostgresStore;
use milepost_store::{Beat, EventQuery, Membership, PlanChange, Store, StoreError};
use tokio_postgres::{Client, NoTls};

use crate::node;
use crate::plans::{NOW, claim, plan, submit, succeeds};
use crate::support::{Schema, is_there};

/// A hand that knows nothing of ours. Its connection ends with the test.
async fn foreign(schema: &Schema) -> Client {
    let (client, connection) = tokio_postgres::connect(&schema.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn wait_until_it_waits_for_a_lock(client: &Client, statement: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 in query) > 0 \
               AND position(current_schema() in query) > 0";
    for _ in 0..6000 {
        if client.query_one(sql, &[&statement]).await.unwrap().get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{statement} never waited");
}

/// Every change of these tables is refused as a collision until this one.
async fn collide_until(schema: &Schema, change: u32) {
    schema.run(&format!("ALTER SEQUENCE @.changes RESTART WITH {}", 1001 - change)).await;
}

async fn given_collisions(schema: &Schema) {
    schema.run("CREATE SEQUENCE @.changes START WITH 1001").await;
    schema
        .run(
            "CREATE FUNCTION @.collide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('@.changes') <= 1000 THEN RAISE EXCEPTION 'a collision' USING ERRCODE = '40001'; END IF;
                RETURN NULL;
            END $$",
        )
        .await;
    for table in ["plans", "task_runtimes", "nodes"] {
        let when = "AFTER INSERT OR UPDATE";
        schema
            .run(&format!("CREATE TRIGGER collide {when} ON @.{table} FOR EACH STATEMENT EXECUTE FUNCTION @.collide()"))
            .await;
    }
}

async fn changes(schema: &Schema) -> i64 {
    foreign(schema).await.query_one("SELECT last_value FROM changes", &[]).await.unwrap().get(0)
}

node_tests! {
    async fn a_deadlock_with_another_transaction_is_tried_again_and_written_once(schema: &Schema) {
        // It looks for a deadlock once, after this long: by then there has to be one, on a busy machine too.
        let patient = format!("{}%20-c%20deadlock_timeout%3D5s", schema.url);
        let store = Arc::new(PostgresStore::open(&patient, Membership::node("a", "boot of a")).await.unwrap());
        submit(&*store, plan("p", 1, 1)).await;
        let held = claim(&*store, "a", 1).await.unwrap().tasks.remove(0);
        let (other, watch) = (foreign(schema).await, foreign(schema).await);
        // Whoever finds the deadlock gives up, and this one does not look.
        other.batch_execute("SET deadlock_timeout = '10min'; BEGIN; UPDATE plans SET slots = slots").await.unwrap();
        let commit = tokio::spawn({
            let (store, commit) = (store.clone(), succeeds(&held, 0));
            async move { store.commit(commit).await }
        });
        wait_until_it_waits_for_a_lock(&watch, "commit_tasks").await;
        let crossing = other.batch_execute("UPDATE task_runtimes SET version = version");
        tokio::time::timeout(Duration::from_secs(300), crossing).await.expect("one of the two gives up").unwrap();
        assert!(!commit.is_finished(), "its row is locked by the other");
        other.batch_execute("COMMIT").await.unwrap();
        commit.await.unwrap().unwrap();
        let stored = store.task(&held.key.id).await.unwrap().unwrap();
        assert_eq!(stored.task.status(), TaskStatus::Completed);
        let log = store.events(EventQuery { task: held.key.id.clone(), after: 0, limit: 100 }).await.unwrap();
        assert_eq!(log.len() as u64, stored.task.version());
        assert_eq!(stored.task.version(), succeeds(&held, 0).task.version());
    }

    async fn whatever_collides_is_tried_again_a_few_times_and_written_once(schema: &Schema) {
        let store = node(schema, "a").await;
        given_collisions(schema).await;
        collide_until(schema, 4).await;
        submit(&*store, plan("p", 1, 1)).await;
        collide_until(schema, 4).await;
        let claimed = claim(&*store, "a", 10).await.unwrap().tasks;
        assert_eq!(claimed.len(), 1);
        collide_until(schema, 4).await;
        assert_eq!(store.beat(Beat::default()).await.unwrap().losses, 0);
        collide_until(schema, 4).await;
        let (plan, by) = (claimed[0].task.spec().plan.clone(), By { who: "ann".to_owned(), why: None });
        let pause = PlanChange { plan, command: PlanCommand::Pause, by, expected: None, now: NOW };
        assert_eq!(store.change_plan(pause).await.unwrap().status, PlanStatus::Paused);
        collide_until(schema, 4).await;
        store.commit(succeeds(&claimed[0], 0)).await.unwrap();
        let stored = store.task(&claimed[0].key.id).await.unwrap().unwrap();
        assert_eq!(stored.task.version(), succeeds(&claimed[0], 0).task.version());
    }

    async fn what_collides_again_and_again_is_refused_in_the_end_and_can_be_sent_again(schema: &Schema) {
        let store = node(schema, "a").await;
        submit(&*store, plan("p", 1, 1)).await;
        let held = claim(&*store, "a", 1).await.unwrap().tasks.remove(0);
        given_collisions(schema).await;
        collide_until(schema, 1000).await;
        let refused = store.commit(succeeds(&held, 0)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
        assert!(changes(schema).await < 20, "it is not tried without end");
        collide_until(schema, 0).await;
        store.commit(succeeds(&held, 0)).await.unwrap();
        let again = store.commit(succeeds(&held, 0)).await;
        assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    }
}
