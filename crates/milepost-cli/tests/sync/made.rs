//! Plans that are made from a catalogue.

use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use crate::support::World;

/// Tables with a key and without one, large and small, with odd names and with what is not copied.
fn shop(world: &World) {
    let connection = Connection::open(world.path().join("shop.db")).unwrap();
    let tables = r#"
        CREATE TABLE small (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES small (id));
        CREATE TABLE order_log (at TEXT, what TEXT);
        CREATE TABLE "Order Details: {{ x }}" (id INTEGER PRIMARY KEY, "a'b" TEXT);
        CREATE TABLE "订单" (a INTEGER, b TEXT, PRIMARY KEY (a, b));
        CREATE TRIGGER watch AFTER INSERT ON small BEGIN SELECT 1; END;
        CREATE VIEW seen AS SELECT * FROM orders;
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
        INSERT INTO orders SELECT i, NULL FROM n;
        INSERT INTO order_log SELECT id, 'x' FROM orders WHERE id < 900;
        INSERT INTO small SELECT id FROM orders WHERE id < 10"#;
    connection.execute_batch(tables).unwrap();
}

const TO: [&str; 4] = ["sync", "init", "sqlite:shop.db", "sqlite:copy.db"];

#[test]
fn a_plan_from_a_catalogue_passes_the_check_has_the_largest_table_first_and_says_what_is_not_copied() {
    let world = World::new();
    shop(&world);
    let made = world.good(&TO).must_say(&[
        "shop-to-copy.yaml: plan shop-to-copy, 5 tables",
        "not copied with orders: foreign key",
        "not copied with small: trigger watch",
        "`milepost run shop-to-copy.yaml` copies them",
    ]);
    assert_eq!(made.stdout.lines().count(), 1, "{}", made.stdout);
    world.good(&["check", "shop-to-copy.yaml"]).must_say(&["plan shop-to-copy, 5 tasks, 5 stages in all, 4 at once"]);
    let text = world.read("shop-to-copy.yaml");
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("no `{words}` in\n{text}"));
    assert!(place("id: shop-to-copy.orders,") < place("id: shop-to-copy.order_log,"));
    assert!(place("id: shop-to-copy.order_log,") < place("id: shop-to-copy.small,"));
    place("The largest first");
    place("# order_log has no key: one pass, cannot resume by chunk");
    place("# small, not copied: trigger watch");
    place(r#"tenant: "sqlite:copy.db/orders""#);
    assert!(!text.contains("seen"), "a view is no table\n{text}");
}

#[test]
fn the_same_tables_make_the_same_plan_and_no_file_is_replaced_unasked() {
    let world = World::new();
    shop(&world);
    world.good(&TO);
    let before = world.read("shop-to-copy.yaml");
    world.milepost(&TO).must_exit(2).must_say(&["shop-to-copy.yaml is there already", "--force"]);
    world.good(&[&TO[..], &["--force"]].concat());
    assert_eq!(world.read("shop-to-copy.yaml"), before);
    let shown = world.good(&[&TO[..], &["--output", "-", "--quiet"]].concat());
    assert_eq!(shown.stdout, before.replace("milepost run shop-to-copy.yaml", "milepost run FILE"));
}

#[test]
fn tables_are_chosen_by_patterns_and_what_fits_nothing_is_told_what_there_is() {
    let world = World::new();
    shop(&world);
    let chosen = world.json(&[&TO[..], &["--tables", "order*", "--exclude", "*_log", "--output", "p.yaml"]].concat());
    let tables: Vec<&str> = chosen["tables"].as_array().unwrap().iter().map(|t| t["table"].as_str().unwrap()).collect();
    assert_eq!((tables, &chosen["planId"]), (vec!["orders"], &"shop-to-copy".into()));
    let none = world.milepost(&[&TO[..], &["--tables", "ordres"]].concat()).must_exit(4);
    none.must_say(&["there are: ", "orders", "order_log"]);
    assert!(!world.exists("shop-to-copy.yaml"));
    let idle = world.good(&[&TO[..], &["--tables", "orders", "--tables", "ordres", "-o", "-"]].concat());
    assert!(idle.stderr.contains("no table is like `ordres`"), "{}", idle.stderr);
    let listed = world.good(&["sync", "tables", "sqlite:shop.db", "--exclude", "Order*"]);
    let lines: Vec<Vec<&str>> = listed.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TABLE", "ROWS", "SIZE", "KEY"]);
    assert_eq!((lines[1][0], lines[1].last()), ("orders", Some(&"id")));
    assert!(lines.iter().any(|line| line[0] == "order_log" && line.last() == Some(&"-")), "{}", listed.stdout);
}

#[test]
fn a_plan_that_tells_a_password_is_for_its_owner_alone_and_warned_of() {
    let world = World::new();
    shop(&world);
    let mode = |name: &str| world.path().join(name).metadata().unwrap().permissions().mode() & 0o077;
    let url = "postgres://ann:hunter2@db.example/warehouse";
    let made = world.good(&["sync", "init", "sqlite:shop.db", url, "-q"]).must_say(&["env:NAME"]);
    assert!(!made.said().contains("hunter2"), "{}", made.said());
    assert_eq!(mode("shop-to-warehouse.yaml"), 0);
    let text = world.read("shop-to-warehouse.yaml");
    assert_eq!(text.matches("hunter2").count(), 1, "only where the plan needs it");

    let mut init = world.command(&["sync", "init", "sqlite:shop.db", "env:WAREHOUSE", "--output", "kept.yaml"]);
    init.env("WAREHOUSE", url);
    let made = world.start_command(init).end().must_exit(0);
    let text = world.read("kept.yaml");
    assert!(!(made.said() + &text).contains("hunter2") && text.contains(r#"to: "env:WAREHOUSE""#), "{text}");
    assert!(text.contains(r#"tenant: "postgres://ann@db.example/warehouse/orders""#), "{text}");
    world.good(&["check", "kept.yaml"]);
}

#[test]
fn what_is_no_database_is_bad_usage_and_one_that_is_not_there_is_out_of_reach() {
    let world = World::new();
    for (source, target, code, words) in [
        ("oracle://ann:hunter2@db/x", "sqlite:a.db", 2, "is no database"),
        ("env:NOBODY_SETS_THIS", "sqlite:a.db", 2, "there is no variable `NOBODY_SETS_THIS`"),
        ("sqlite:a.db", "sqlite:a.db", 2, "to itself"),
        ("sqlite:missing.db", "sqlite:a.db", 3, "missing.db"),
        ("postgres://ann:hunter2@127.0.0.1:1/x", "sqlite:a.db", 3, "127.0.0.1:1"),
        ("mysql://ann:hunter2@127.0.0.1:1/x", "sqlite:a.db", 3, "127.0.0.1:1"),
    ] {
        let refused = world.milepost(&["sync", "init", source, target]).must_exit(code).must_say(&[words]);
        assert!(!refused.said().contains("hunter2"), "{}", refused.said());
    }
    assert!(!world.exists("missing.db") && !world.exists("a.db"), "looking makes nothing");
}

#[test]
fn databases_with_names_are_called_by_them_in_the_plan_and_by_whoever_runs_it() {
    let world = World::new();
    shop(&world);
    world.file("milepost.toml", "[databases]\nhere = 'sqlite:shop.db'\nthere = 'env:THERE'\n");
    let with_there = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("THERE", "sqlite:copy.db");
        world.start_command(command).end()
    };
    with_there(&["sync", "init", "here", "there", "--tables", "orders"]).must_exit(0);
    let text = world.read("shop-to-copy.yaml");
    assert!(text.contains("\n      from: here\n      to: there\n"), "{text}");
    with_there(&["run", "shop-to-copy.yaml"]).must_exit(0);
    let copy = Connection::open(world.path().join("copy.db")).unwrap();
    let rows: i64 = copy.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 5000);
    let unknown = world.milepost(&["sync", "tables", "hree"]).must_exit(2);
    unknown.must_say(&["`hree` is no database", "here, there"]);
}
