//! How far each partition may be acknowledged: up to the first message that is not durable yet, and no further.

use std::collections::{BTreeMap, VecDeque};

/// The offsets of the partitions that this node reads.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    partitions: BTreeMap<i32, Partition>,
    assignments: u64,
}

#[derive(Debug, Default)]
struct Partition {
    /// A partition that went and came back is another one: what was in hand before counts no more.
    assignment: u64,
    /// Taken and not yet acknowledged, in order, and whether each is durable. Offsets need not be dense.
    open: VecDeque<(i64, bool)>,
    /// What the next reader should begin with.
    mark: Option<i64>,
    committed: Option<i64>,
}

/// One message in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    partition: i32,
    offset: i64,
    assignment: u64,
}

impl Offsets {
    pub(crate) fn assigned(&mut self, partition: i32) {
        self.assignments += 1;
        self.partitions.insert(partition, Partition { assignment: self.assignments, ..Partition::default() });
    }

    /// What is still to be committed of a partition that goes.
    pub(crate) fn revoked(&mut self, partition: i32) -> Option<i64> {
        let gone = self.partitions.remove(&partition)?;
        gone.uncommitted()
    }

    pub(crate) fn taken(&mut self, partition: i32, offset: i64) -> Ticket {
        let known = self.partitions.get(&partition).is_some_and(|known| known.open.back().is_none_or(|b| b.0 < offset));
        if !known {
            // The reader has gone back to an earlier place.
            self.assigned(partition);
        }
        let partition_now = self.partitions.entry(partition).or_default();
        partition_now.open.push_back((offset, false));
        Ticket { partition, offset, assignment: partition_now.assignment }
    }

    /// The message is durable.
    pub(crate) fn done(&mut self, ticket: Ticket) {
        let Some(partition) = self.partitions.get_mut(&ticket.partition) else { return };
        if partition.assignment != ticket.assignment {
            return;
        }
        if let Ok(place) = partition.open.binary_search_by_key(&ticket.offset, |open| open.0) {
            partition.open[place].1 = true;
        }
        while let Some((offset, true)) = partition.open.front() {
            partition.mark = Some(offset + 1);
            partition.open.pop_front();
        }
    }

    pub(crate) fn to_commit(&self) -> Vec<(i32, i64)> {
        self.partitions.iter().filter_map(|(&id, partition)| Some((id, partition.uncommitted()?))).collect()
    }

    pub(crate) fn committed(&mut self, partition: i32, offset: i64) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.committed = partition.committed.max(Some(offset));
        }
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        self.partitions.keys().copied().collect()
    }
}

impl Partition {
    fn uncommitted(&self) -> Option<i64> {
        self.mark.filter(|_| self.mark > self.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_hand_holds_back_all_that_came_after_it() {
        let mut offsets = Offsets::default();
        offsets.assigned(0);
        let tickets: Vec<Ticket> = [10, 11, 14].into_iter().map(|offset| offsets.taken(0, offset)).collect();
        offsets.done(tickets[1]);
        offsets.done(tickets[2]);
        assert_eq!(offsets.to_commit(), []);
        offsets.done(tickets[0]);
        assert_eq!(offsets.to_commit(), [(0, 15)]);
        offsets.committed(0, 15);
        assert_eq!(offsets.to_commit(), []);
    }

    #[test]
    fn what_was_in_hand_before_a_partition_went_does_not_count_when_it_is_back() {
        let mut offsets = Offsets::default();
        offsets.assigned(3);
        let before = offsets.taken(3, 7);
        assert_eq!(offsets.revoked(3), None);
        offsets.assigned(3);
        let again = offsets.taken(3, 7);
        offsets.done(before);
        assert_eq!(offsets.to_commit(), []);
        offsets.done(again);
        assert_eq!(offsets.revoked(3), Some(8));
    }

    #[test]
    fn a_reader_that_goes_back_begins_anew() {
        let mut offsets = Offsets::default();
        offsets.assigned(0);
        let first = offsets.taken(0, 5);
        let repeated = offsets.taken(0, 5);
        offsets.done(first);
        assert_eq!(offsets.to_commit(), []);
        offsets.done(repeated);
        assert_eq!(offsets.to_commit(), [(0, 6)]);
    }
}
