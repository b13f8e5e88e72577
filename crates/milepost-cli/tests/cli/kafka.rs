//! `serve --kafka`, without a broker: what is said at the start, and that nothing waits for one.

use crate::support::World;

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_how_to_get_one() {
    let world = World::new();
    let said = world.milepost(&["serve", "--kafka", "127.0.0.1:1"]).must_exit(2);
    said.must_say(&["cannot read messages from Kafka", "--features kafka"]);
}

#[cfg(feature = "kafka")]
mod with_kafka {
    use std::time::{Duration, Instant};

    use rustix::process::Signal;

    use super::World;
    use crate::support::wait_for;

    /// Nothing listens there.
    const NOWHERE: &str = "127.0.0.1:1";

    #[test]
    fn a_mistake_in_a_chain_is_told_with_its_place_before_anything_starts() {
        let world = World::new();
        world.file(
            "milepost.toml",
            &format!("[kafka]\nbrokers = '{NOWHERE}'\n[kafka.chains]\nresize = 'resize.yaml'\n"),
        );
        world.milepost(&["serve"]).must_exit(2).must_say(&["resize.yaml"]);
        world.file("resize.yaml", "stages:\n  - name: scan\n    uses: scanner\n");
        world.milepost(&["serve"]).must_exit(2).must_say(&["resize.yaml:3", "there is no stage kind `scanner`"]);
        world.file("resize.yaml", "stages:\n  - { name: scan, uses: noop }\ntasks:\n  - { id: a }\n");
        world.milepost(&["serve"]).must_exit(2).must_say(&["resize.yaml:3", "tasks"]);
        assert!(!world.exists("milepost.db"));
    }

    #[test]
    fn what_kafka_does_not_take_is_refused_at_the_start() {
        let world = World::new();
        world.file("milepost.toml", "[kafka.properties]\n'enable.auto.commit' = 'true'\n");
        world.milepost(&["serve", "--kafka", NOWHERE]).must_exit(2).must_say(&["`enable.auto.commit`"]);
        world.file("milepost.toml", "[kafka.properties]\n'no.such.property' = 'true'\n");
        world.milepost(&["serve", "--kafka", NOWHERE]).must_exit(2).must_say(&["no.such.property"]);
        world.file("milepost.toml", "[kafka]\ndeadline = 'soon'\n");
        world.milepost(&["serve", "--kafka", NOWHERE]).must_exit(2).must_say(&["`deadline` of [kafka]"]);
    }

    #[test]
    fn a_server_whose_brokers_are_away_works_and_ends_soon() {
        let world = World::new();
        let served = world.serve(&["--kafka", NOWHERE]);
        wait_for("the server says that its brokers are away", || {
            served.running.stderr().contains("Kafka is out of reach").then_some(())
        });
        assert_eq!((served.status("/healthz"), served.status("/api/v1/consumer")), (200, 200));
        let begin = Instant::now();
        served.running.signal(Signal::TERM);
        served.running.end().must_exit(0);
        // Seconds, and not for ever: a busy machine may make more of them.
        assert!(begin.elapsed() < Duration::from_secs(120), "it took {:?} to end", begin.elapsed());
    }
}
