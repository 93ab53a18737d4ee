//! Tests that every acknowledged record can be found: through a member of the highest generation,
//! which the required number of other nodes know. Method: the rules alone, without disks and nodes,
//! with simulated times.

use super::*;
use crate::limits::{COPY_PATIENCE, FIRST_COPY_PATIENCE, GENERATION_PATIENCE};

const REPLICA_NODES: [NodeId; 2] = [NodeId(2), NodeId(3)];

struct Bench {
    durability: Durability,
    now: Instant,
}

impl Bench {
    fn new(sequence: u64, others: usize, least: usize, last: Option<Generation>) -> Self {
        let (now, rule) = (Instant::now(), Rule::new(least, others));
        let copies = others.min(2);
        Self { durability: Durability::new(sequence, (copies, others), rule, last, now), now }
    }

    /// Proposes, and has it written here.
    fn propose(&mut self) -> Option<Generation> {
        let proposed = self.durability.propose(self.now);
        if let Some(generation) = proposed {
            self.durability.record_written(generation.number);
        }
        proposed
    }

    /// These nodes have everything and know the last generation.
    fn all_is_known(&mut self, others: &[usize]) {
        let (local, last) = (self.durability.local, self.durability.proposed());
        for other in others {
            self.durability.record_known(*other, last);
            self.durability.record_copied(*other, local);
        }
    }

    fn passes(&mut self, time: std::time::Duration) {
        self.durability.look(self.now);
        self.now += time;
        self.durability.look(self.now);
    }

    /// One that counts, of so many others.
    fn counting(others: usize, least: usize) -> Self {
        let mut bench = Self::new(7, others, least, None);
        assert_eq!(bench.propose().map(|first| (first.number, first.members)), Some((1, 0b11)));
        let all: Vec<usize> = (0..others).collect();
        bench.all_is_known(&all);
        assert_eq!(bench.durability.acknowledged(), 7);
        assert_eq!((bench.propose(), bench.durability.counting()), (None, 1));
        bench
    }
}

#[test]
fn without_copies_the_own_disk_counts() {
    let mut bench = Bench::new(7, 0, 0, None);
    assert_eq!((bench.durability.acknowledged(), bench.propose()), (7, None));
    bench.durability.record_local(9);
    bench.durability.record_local(8);
    assert_eq!((bench.durability.acknowledged(), bench.durability.waits()), (9, false));
    assert_eq!(bench.durability.shortage(bench.now), None);
}

#[test]
fn a_record_counts_when_it_is_here_and_in_every_member_of_a_generation_that_all_know() {
    let mut bench = Bench::new(7, 2, 1, None);
    bench.durability.record_local(20);
    bench.durability.record_copied(0, 20);
    bench.durability.record_copied(1, 20);
    assert_eq!(bench.durability.acknowledged(), 0, "no generation counts");
    let first = bench.durability.propose(bench.now).unwrap();
    assert_eq!(first, Generation { number: 1, members: 0b11, quorum: 1, began_after: 7 });
    bench.durability.record_known(0, 1);
    bench.durability.record_known(1, 1);
    assert_eq!(bench.durability.acknowledged(), 0, "it is not durable here");
    bench.durability.record_written(1);
    assert_eq!(bench.durability.acknowledged(), 20);
    bench.durability.record_local(30);
    bench.durability.record_copied(0, 29);
    bench.durability.record_copied(1, 25);
    bench.durability.record_copied(1, 24);
    bench.durability.record_copied(9, 99);
    assert_eq!(bench.durability.acknowledged(), 25, "the slower of two");
    bench.durability.record_copied(0, 40);
    bench.durability.record_copied(1, 40);
    assert_eq!(bench.durability.acknowledged(), 30, "not more than is here");
}

#[test]
fn a_copy_is_left_out_only_when_the_others_know_that() {
    let mut bench = Bench::counting(2, 1);
    bench.durability.record_local(9);
    bench.durability.record_copied(0, 9);
    bench.passes(COPY_PATIENCE);
    assert_eq!(bench.durability.acknowledged(), 7);
    let without = bench.durability.propose(bench.now).unwrap();
    assert_eq!((without.number, without.members, without.began_after), (2, 0b01, 7));
    bench.durability.record_known(0, 2);
    assert_eq!(bench.durability.acknowledged(), 7, "it is not durable here");
    bench.durability.record_written(2);
    assert_eq!((bench.durability.acknowledged(), bench.durability.whole_copies()), (9, 1));
    // It comes back: it is waited for at once, and counts when all know.
    assert!(!bench.durability.record_copied(1, 3), "it has not caught up");
    bench.durability.record_local(12);
    bench.durability.record_copied(0, 12);
    assert_eq!(bench.durability.acknowledged(), 12);
    assert!(bench.durability.record_copied(1, 9), "what came meanwhile is on its way");
    assert_eq!(bench.propose(), None, "it lacks what was acknowledged");
    bench.durability.record_local(13);
    bench.durability.record_copied(0, 13);
    assert_eq!(bench.durability.acknowledged(), 12, "and is waited for");
    bench.durability.record_copied(1, 13);
    assert_eq!(bench.propose().map(|both| (both.number, both.members)), Some((3, 0b11)));
    bench.durability.record_local(14);
    bench.durability.record_copied(0, 14);
    assert_eq!(bench.durability.acknowledged(), 13, "whoever was named may be asked");
    bench.durability.record_copied(1, 14);
    assert_eq!(bench.durability.acknowledged(), 14);
}

#[test]
fn below_the_least_number_nothing_is_acknowledged_and_nothing_new_taken_until_one_is_back() {
    let mut bench = Bench::counting(2, 1);
    bench.durability.record_local(9);
    assert!(bench.durability.record_lost(1) && !bench.durability.record_lost(1));
    assert_eq!(bench.durability.shortage(bench.now), None, "one is enough");
    bench.passes(COPY_PATIENCE);
    let unavailable = vec![0, 1];
    assert_eq!(bench.durability.shortage(bench.now), Some(Shortage::Replicas { unavailable }));
    assert_eq!((bench.propose(), bench.durability.acknowledged()), (None, 7));
    assert!(bench.durability.record_copied(1, 9), "it has everything");
    assert_eq!(bench.durability.shortage(bench.now), None);
    let alone = bench.propose().unwrap();
    assert_eq!((alone.number, alone.members), (2, 0b10));
    assert_eq!(bench.durability.acknowledged(), 7);
    bench.durability.record_known(1, 2);
    assert_eq!(bench.durability.acknowledged(), 9);
}

#[test]
fn with_a_least_number_of_none_the_own_disk_is_enough_and_others_are_told_when_they_are_back() {
    let mut bench = Bench::counting(2, 0);
    bench.durability.record_lost(0);
    bench.durability.record_lost(1);
    bench.durability.record_local(9);
    let alone = bench.propose().unwrap();
    assert_eq!((alone.members, alone.quorum), (0, 0));
    assert_eq!((bench.durability.acknowledged(), bench.durability.shortage(bench.now)), (9, None));
}

#[test]
fn where_there_are_three_others_two_know_each_generation_before_it_counts() {
    let mut bench = Bench::counting(3, 1);
    bench.durability.record_lost(1);
    bench.durability.record_local(9);
    bench.durability.record_copied(0, 9);
    bench.propose().unwrap();
    bench.durability.record_known(0, 2);
    assert_eq!(bench.durability.acknowledged(), 7, "one beside this one may be lost");
    bench.now += GENERATION_PATIENCE;
    let unaware = vec![1, 2];
    let late = Shortage::Generation { number: 2, unaware, needed: 2 };
    assert_eq!(bench.durability.shortage(bench.now), Some(late));
    bench.durability.record_known(2, 2);
    assert_eq!((bench.durability.acknowledged(), bench.durability.shortage(bench.now)), (9, None));
}

#[test]
fn a_rule_of_fewer_counts_only_after_a_generation_that_as_many_know_as_before() {
    let strict = Generation { number: 5, members: 0b11, quorum: 2, began_after: 0 };
    let mut bench = Bench::new(7, 3, 0, Some(strict));
    assert_eq!(bench.propose(), None);
    bench.all_is_known(&[0, 1]);
    assert_eq!((bench.durability.acknowledged(), bench.durability.counting()), (7, 5));
    let next = bench.propose().unwrap();
    assert_eq!((next.number, next.quorum), (6, 0));
    bench.durability.record_known(0, 6);
    bench.durability.acknowledged();
    assert_eq!(bench.durability.counting(), 0, "both members know");
    bench.durability.record_known(1, 6);
    bench.durability.acknowledged();
    assert_eq!((bench.durability.counting(), bench.propose()), (6, None));
}

#[test]
fn after_a_start_nothing_is_told_before_the_members_have_what_was_recovered() {
    let last = Generation { number: 4, members: 0b01, quorum: 1, began_after: 0 };
    let mut bench = Bench::new(7, 2, 1, Some(last));
    bench.durability.record_known(0, 4);
    bench.durability.record_copied(0, 5);
    assert_eq!((bench.durability.acknowledged(), bench.durability.counting()), (0, 0));
    bench.durability.record_copied(0, 7);
    bench.durability.record_copied(1, 6);
    bench.passes(COPY_PATIENCE);
    assert_eq!(bench.propose(), None, "the second one lacks a record");
    bench.durability.acknowledged();
    assert_eq!(bench.durability.counting(), 4);
    assert_eq!(bench.durability.acknowledged(), 6, "it is waited for, as it moves");
    bench.durability.record_copied(1, 7);
    assert_eq!((bench.durability.acknowledged(), bench.propose().map(|of| of.members)), (7, Some(0b11)));
}

#[test]
fn a_silent_node_is_left_out_after_a_start_though_nothing_was_written() {
    let mut bench = Bench::new(0, 2, 1, None);
    bench.propose().unwrap();
    bench.durability.record_known(0, 1);
    bench.durability.record_copied(0, 0);
    bench.passes(COPY_PATIENCE);
    assert_eq!(bench.propose(), None, "others start at the same time");
    bench.passes(FIRST_COPY_PATIENCE);
    assert_eq!(bench.propose().map(|of| of.members), Some(0b01));
}

#[test]
fn a_new_version_of_the_log_waits_for_the_copies_that_are_waited_for() {
    let mut bench = Bench::counting(2, 1);
    bench.durability.begin_ahead();
    bench.durability.record_ahead(0);
    assert!(!bench.durability.all_ahead());
    bench.durability.record_lost(1);
    assert!(bench.durability.all_ahead(), "the other one is not");
    bench.durability.begin_ahead();
    assert!(!bench.durability.all_ahead(), "another one");
}

#[test]
fn a_copy_that_is_behind_and_moves_is_waited_for() {
    let mut bench = Bench::counting(2, 1);
    for second in 8..28 {
        bench.durability.record_local(second + 1);
        (0..2).for_each(|copy| {
            bench.durability.record_copied(copy, second);
        });
        bench.now += COPY_PATIENCE;
        assert!(bench.durability.look(bench.now).is_empty());
    }
}

#[test]
fn members_travel_by_their_ids_and_one_that_is_no_replica_node_any_more_makes_a_new_generation() {
    let known = LogGeneration { number: 3, members: vec![NodeId(2), NodeId(9)], quorum: 1, began_after: 5 };
    let mut bench = Bench::new(0, 2, 1, Some(Generation::of(&known, &REPLICA_NODES)));
    bench.durability.record_copied(0, 0);
    bench.durability.record_copied(1, 0);
    let next = bench.propose().unwrap().to_log(&REPLICA_NODES);
    assert_eq!((next.number, next.members), (4, REPLICA_NODES.to_vec()));
    let own = LogGeneration { members: vec![NodeId(3)], ..known };
    assert_eq!(Generation::of(&own, &REPLICA_NODES).to_log(&REPLICA_NODES), own);
}
