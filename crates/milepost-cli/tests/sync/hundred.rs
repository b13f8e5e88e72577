//! Many tables, few at once, some of them done before.

use milepost_core::id::PlanId;
use milepost_core::task::Event;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{ChangeQuery, Changed, Position, Store};

use crate::source::{self, Source};
use crate::support::World;
use crate::target::Target;

const AT_ONCE: usize = 10;

/// How many tasks of the plan were at work after each event of its log, in the order in which they were committed.
fn curve(world: &World, plan: &str) -> Vec<usize> {
    let store = SqliteStore::open_to_read(world.path().join("milepost.db")).unwrap();
    let plan = Some(PlanId::parse(plan).unwrap());
    let query = ChangeQuery { after: Position(0), plan, limit: 100_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let changes = runtime.block_on(store.changes(query)).unwrap();
    assert!(!changes.more);
    let mut active = 0_usize;
    let mut curve = Vec::new();
    for change in changes.items {
        let Changed::Task { records, .. } = change.what else { continue };
        for record in records {
            match record.event() {
                Event::TaskStarted { .. } => active += 1,
                Event::TaskCompleted { .. } => active -= 1,
                _ => {}
            }
            curve.push(active);
        }
    }
    curve
}

#[test]
fn of_100_tables_with_20_copied_before_80_are_copied_and_never_more_than_10_at_once() {
    for target in Target::all("of_100_tables_with_20_copied_before") {
        let world = World::new();
        let target = target(&world);
        let source = Source::new(&world, (0..100).map(|table| format!("t{table:02}")).collect(), 60);
        let init = |tables: &[&str]| {
            let init =
                ["sync", "init", source::URL, target.url(), "--plan", "all", "--output", "p.yaml", "--force", "-q"];
            world.good(&[&init[..], &["--concurrency", "10", "--batch-size", "100"], tables].concat());
            // Long enough for ten to be at work together.
            let slow = world.read("p.yaml").replace("# rows_per_second: 10000", "rows_per_second: 200");
            world.file("p.yaml", &slow);
        };
        init(&["--tables", "t0?", "--tables", "t1?"]);
        world.good(&["run", "p.yaml", "-q"]);
        let done = |world: &World| world.json(&["status", "all"])["tasks"]["completed"].clone();
        assert_eq!(done(&world), 20);
        let before = curve(&world, "all").len();
        // Whoever copies one of them again takes this away.
        target.tell("UPDATE t07 SET name = 'seen' WHERE id = 3");

        init(&[]);
        let refused = world.milepost(&["run", "p.yaml", "-q"]);
        refused.must_exit(2).must_say(&["--update"]);
        world.good(&["run", "p.yaml", "-q", "--update"]);
        assert_eq!(done(&world), 100);
        let curve = curve(&world, "all");
        let most = curve.iter().max();
        assert_eq!(most, Some(&AT_ONCE), "{curve:?}");
        assert_eq!(curve.last(), Some(&0));
        let starts = curve.windows(2).skip(before - 1).filter(|pair| pair[0] < pair[1]).count();
        assert_eq!(starts, 80, "tables that were copied after the first twenty");
        source.tell("UPDATE t07 SET name = 'seen' WHERE id = 3");
        target.must_equal(&source);
    }
}
