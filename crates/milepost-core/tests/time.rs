//! Times and durations as text: whatever can be had can be written, and reads back.

use milepost_core::time::{Millis, Timestamp};
use proptest::prelude::{prop_assert_eq, proptest};

const LAST: i64 = 253_402_207_200_000;
const FIRST: i64 = -377_705_023_201_000;

#[test]
fn the_end_of_a_wait_without_end_is_a_time_that_can_be_written() {
    let (now, ever) = (Timestamp::from_millis(1_764_000_000_123), Millis::new(u64::MAX));
    for end in [now + ever, now + ever + Millis::new(1), Timestamp::from_millis(LAST)] {
        assert_eq!(end.to_string(), "9999-12-30T22:00:00.000Z");
    }
}

proptest! {
    #[test]
    fn every_time_reads_back_as_it_was_written(at: i64) {
        let at = Timestamp::from_millis(at);
        prop_assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }

    #[test]
    fn times_near_the_bounds_read_back_as_well(near in -2000i64..2000, bound in 0usize..5) {
        let at = Timestamp::from_millis([LAST, FIRST, 0, i64::MAX, i64::MIN][bound].saturating_add(near));
        prop_assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }

    #[test]
    fn every_duration_of_a_plan_file_reads_back_as_it_was_written(length in 0..=i64::MAX.unsigned_abs()) {
        prop_assert_eq!(Millis::new(length).to_string().parse(), Ok(Millis::new(length)));
    }
}
