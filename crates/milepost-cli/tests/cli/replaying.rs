//! `replay` and `signal`, on the tasks of plan files.

use crate::support::{World, failing};

#[test]
fn a_recorded_task_replays_without_divergence_and_a_signal_to_it_is_refused() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.file("mended", "");
    world.good(&["run", "p.yaml", "--retry-failed"]);
    world.good(&["replay", "t"]).must_say(&["replayed", "events, no divergence"]);
    let replayed = world.json(&["replay", "t"]);
    assert_eq!((&replayed["taskId"], replayed["divergence"].is_null()), (&"t".into(), true));
    world.milepost(&["replay", "nobody"]).must_exit(4);
    world.milepost(&["replay", "t", "--export"]).must_exit(5);
    world.milepost(&["signal", "t", "go", "{}"]).must_exit(5).must_say(&["only a workflow can be sent a signal"]);
    world.milepost(&["signal", "nobody", "go"]).must_exit(4);
    world.milepost(&["signal", "t", "go", "yes"]).must_exit(2).must_say(&["is not JSON"]);
}
