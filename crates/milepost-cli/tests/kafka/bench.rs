//! What `bench kafka` says of itself.

use crate::support::World;
use crate::topics::Site;

#[test]
fn bench_says_what_messages_cost_beside_plans_that_come_without_them() {
    let test = "bench_says_what_messages_cost_beside_plans_that_come_without_them";
    let Some(site) = Site::new(test, "", &[]) else { return };
    let size = ["--tasks", "20", "--in-flight", "4"];
    let figures = site.world.json(&[&["bench", "kafka", "--store", &site.place.url][..], &size].concat());
    assert_eq!((&figures["workload"], &figures["tasks"], &figures["stages"]), (&"kafka".into(), &20.into(), &3.into()));
    for figure in ["messagesPerSecond", "storeOnlyTasksPerSecond", "ofStoreOnly"] {
        assert!(figures[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure} in {figures}");
    }
    World::new().milepost(&["bench", "kafka"]).must_exit(2).must_say(&["needs a broker", "--kafka"]);
}
