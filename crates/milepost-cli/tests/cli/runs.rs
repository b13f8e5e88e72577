//! Runs of a task: what outside belongs to one, and is not taken for another's.

use rusqlite::Connection;

use crate::canned::{Reply, Server};
use crate::support::World;

/// Copies five people into another database, then fails until there is a file `ok`.
fn copying(world: &World, with: &str) {
    let people = "CREATE TABLE people (name TEXT); INSERT INTO people VALUES ('a'), ('b'), ('c'), ('d'), ('e')";
    Connection::open(world.path().join("source.db")).unwrap().execute_batch(people).unwrap();
    world.file(
        "p.yaml",
        &format!(
            "plan: p\nstages:\n  - name: copy\n    uses: copy-table\n    with: {{ from: 'sqlite:source.db', \
             to: 'sqlite:target.db', table: people{with} }}\n    rollback: {{ run: 'true' }}\n\
             \x20 - name: check\n    run: test -e ok\n    needs: [copy]\n    retry: {{ max_attempts: 1 }}\ntasks: [{{ id: t }}]\n"
        ),
    );
}

fn target(world: &World) -> Connection {
    Connection::open(world.path().join("target.db")).unwrap()
}

fn people(world: &World) -> u32 {
    target(world).query_row("SELECT count(*) FROM people", [], |row| row.get(0)).unwrap()
}

#[test]
fn rows_that_a_rollback_took_out_are_appended_again_by_the_retry_after_it() {
    let world = World::new();
    copying(&world, ", if_exists: append");
    target(&world).execute_batch("CREATE TABLE people (name TEXT)").unwrap();
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    assert_eq!(people(&world), 5);
    world.good(&["rollback", "t"]);
    world.milepost(&["run", "p.yaml"]);
    assert_eq!(world.status("t").as_deref(), Some("ROLLED_BACK"));
    target(&world).execute_batch("DELETE FROM people").unwrap();
    world.file("ok", "");
    world.good(&["retry", "t"]);
    world.good(&["run", "p.yaml"]);
    assert_eq!((world.status("t").as_deref(), people(&world)), (Some("COMPLETED"), 5));
}

#[test]
fn a_table_that_a_task_of_the_same_name_in_another_store_has_made_is_left_alone() {
    let world = World::new();
    copying(&world, "");
    world.file("ok", "");
    world.good(&["run", "p.yaml"]);
    target(&world).execute_batch("INSERT INTO people VALUES ('of somebody else')").unwrap();
    let other = world.milepost(&["--store", "sqlite:other.db", "run", "p.yaml"]);
    assert_ne!(other.code, 0, "{other:?}");
    let status = world.milepost(&["--store", "sqlite:other.db", "status", "t", "--json"]);
    assert!(status.stdout.contains("has not made it"), "{status:?}");
    assert_eq!(people(&world), 6);
}

#[test]
fn a_task_of_the_same_name_in_another_store_appends_rows_of_its_own() {
    let world = World::new();
    copying(&world, ", if_exists: append");
    world.file("ok", "");
    world.good(&["run", "p.yaml"]);
    world.good(&["--store", "sqlite:other.db", "run", "p.yaml"]);
    assert_eq!(people(&world), 10);
}

#[test]
fn a_charge_that_was_refunded_is_made_anew_under_another_key() {
    let world = World::new();
    let server = Server::new([("POST /charge", Reply::json("{}")), ("POST /refund", Reply::json("{}"))]);
    let (charge, refund) = (format!("{}/charge", server.url), format!("{}/refund", server.url));
    world.file(
        "p.yaml",
        &format!(
            "plan: p\nstages:\n  - name: charge\n    http: {{ method: POST, url: '{charge}' }}\n    \
             rollback: {{ http: {{ method: POST, url: '{refund}' }} }}\n  - name: ship\n    run: test -e ok\n    \
             needs: [charge]\n    retry: {{ max_attempts: 1 }}\ntasks: [{{ id: t }}]\n"
        ),
    );
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["rollback", "t"]);
    world.milepost(&["run", "p.yaml"]);
    world.good(&["retry", "t"]);
    world.file("ok", "");
    world.good(&["run", "p.yaml"]);
    let asked = server.asked();
    let whats: Vec<&str> = asked.iter().map(|asked| asked.what.as_str()).collect();
    assert_eq!(whats, ["POST /charge", "POST /refund", "POST /charge"]);
    let keys: Vec<&str> = asked.iter().map(|asked| asked.key.as_deref().unwrap()).collect();
    assert!(keys.iter().all(|key| key.starts_with("t/charge/")), "{keys:?}");
    assert_eq!(keys[1], format!("{}/rollback", keys[0]), "the refund belongs to the charge that it undoes");
    assert_ne!(keys[2], keys[0]);
}

#[test]
fn attempts_of_one_run_have_one_key_and_a_run_from_the_start_has_another() {
    let world = World::new();
    let say = "echo $MILEPOST_IDEMPOTENCY_KEY >> keys; test -e ok";
    world.file(
        "p.yaml",
        &format!(
            "plan: p\nstages:\n  - name: work\n    run: {say}\n    \
             retry: {{ max_attempts: 2, strategy: fixed, base: 10ms }}\ntasks: [{{ id: t }}]\n"
        ),
    );
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["retry", "t"]);
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["retry", "t", "--from-start"]);
    world.file("ok", "");
    world.good(&["run", "p.yaml"]);
    let keys = world.read("keys");
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
    assert!(keys[..4].iter().all(|key| *key == keys[0]), "two attempts, and two more by a retry: {keys:?}");
    assert_ne!(keys[4], keys[0]);
}

#[test]
fn a_store_that_is_moved_keeps_the_keys_of_its_work() {
    let world = World::new();
    world.file(
        "p.yaml",
        "plan: p\nstages:\n  - name: work\n    run: echo $MILEPOST_IDEMPOTENCY_KEY >> keys; test -e ok\n    \
         retry: { max_attempts: 1 }\ntasks: [{ id: t }]\n",
    );
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.good(&["retry", "t"]);
    world.good(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    world.file("ok", "");
    world.good(&["--store", "sqlite:new.db", "run", "p.yaml"]);
    let keys = world.read("keys");
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys, [keys[0], keys[0]]);
}
