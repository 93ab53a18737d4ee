//! Counts which slices of a stripe are present, sent and kept at one place, and derives which slots
//! may be reused. `plan.rs` defines sources and readers.
//!
//! Each reader of a source has a tail: the number of slices that it is done with. The tail of a
//! source is the least tail of its readers. No slice before it is needed, so the slots of all
//! earlier slices are free (the paper calls these reference tails).
//!
//! # Why nothing waits forever
//!
//! Take the smallest slice that is not finished at every place. Among the steps, sums and kept
//! cells that have not processed this slice, take the first one in the order of the schedule. Its
//! inputs are present, because they come earlier in that order. It needs a slot at its receiver, or
//! one for the place's sum. That slot was last used by a smaller slice of the same step, which is
//! finished at every place, so the slot is free. So this slice can proceed. Every step has rings of
//! its own, so it does not queue behind other steps; and a posted operation completes without the
//! help of other places. This argument needs one slot per ring. Credits may be late by less than a
//! quarter of a ring, which leaves at least one slot.
//!
//! Invariants
//! - This file computes with numbers only: it has no memory of slices and does no IO.
//! - `tail <= there <= slices` for every source (`there` is the number of slices present). A sum is
//!   never ahead of its tail by more than its slots.

use crate::plan::{Plan, Reader};

/// The progress of one stripe at one place, counted in slices.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    slices: u32,
    /// The slots of a sum.
    slots: u32,
    /// For each source, the number of slices that are there.
    there: Vec<u32>,
    /// For each send, the number of slices posted.
    posted: Vec<u32>,
    /// For each send, the number of slices completed.
    sent: Vec<u32>,
    /// For each keep, the number of slices kept.
    kept: Vec<u32>,
}

impl Progress {
    /// The progress at the beginning.
    pub(crate) fn new(plan: &Plan, slices: u32, slots: u32) -> Self {
        Self {
            slices,
            slots,
            there: vec![0; plan.sources()],
            posted: vec![0; plan.sends.len()],
            sent: vec![0; plan.sends.len()],
            kept: vec![0; plan.keeps.len()],
        }
    }

    /// The number of slices of a cell.
    pub(crate) fn slices(&self) -> u32 {
        self.slices
    }

    /// The number of slices of a source that are there.
    pub(crate) fn there(&self, source: usize) -> u32 {
        self.there[source]
    }

    /// Another slice of a source is there.
    pub(crate) fn arrived(&mut self, source: usize) {
        self.there[source] += 1;
    }

    /// All slices of a source are there.
    pub(crate) fn whole(&mut self, source: usize) {
        self.there[source] = self.slices;
    }

    /// The next slice of a sum that can be computed now.
    pub(crate) fn next_sum(&self, plan: &Plan, sum: usize) -> Option<u32> {
        let source = plan.origins.len() + sum;
        let slice = self.there[source];
        let inputs_are_there = plan.sums[sum].iter().all(|input| self.there[*input] > slice);
        let has_room = slice - self.tail(plan, source) < self.slots;
        (slice < self.slices && inputs_are_there && has_room).then_some(slice)
    }

    /// The next slice of a send, if its source has it.
    pub(crate) fn next_send(&self, plan: &Plan, send: usize) -> Option<u32> {
        let slice = self.posted[send];
        (self.there[plan.sends[send].source] > slice).then_some(slice)
    }

    /// The next slice of a send was posted.
    pub(crate) fn posted(&mut self, send: usize) {
        self.posted[send] += 1;
    }

    /// A slice of a send has completed; false if none was posted.
    pub(crate) fn sent(&mut self, send: usize) -> bool {
        match (self.sent.get_mut(send), self.posted.get(send)) {
            (Some(sent), Some(posted)) if *sent < *posted => *sent += 1,
            _ => return false,
        }
        true
    }

    /// The number of slices of a cell that are kept.
    pub(crate) fn kept(&self, keep: usize) -> u32 {
        self.kept[keep]
    }

    /// The next slice of a cell is kept.
    pub(crate) fn keep(&mut self, keep: usize) {
        self.kept[keep] += 1;
    }

    /// The number of slices of a source that are not needed any more.
    pub(crate) fn tail(&self, plan: &Plan, source: usize) -> u32 {
        let done = |reader: &Reader| match *reader {
            Reader::Sum(sum) => self.there[plan.origins.len() + sum],
            Reader::Send(send) => self.sent[send],
            Reader::Keep(keep) => self.kept[keep],
        };
        plan.readers[source].iter().map(done).min().unwrap_or(self.there[source])
    }

    /// Whether everything has been done.
    pub(crate) fn is_through(&self) -> bool {
        let all = [&self.there, &self.sent, &self.kept];
        all.into_iter().flatten().all(|done| *done == self.slices)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rackscan_stripe::{Column, Geometry, Parity, Sender, Way};

    use super::*;
    use crate::{
        plan::Origin,
        ring::{Credit, Inlet, Outlet, SliceName},
        task::{LostMembers, Task, Transfers},
    };

    const SLICES: u32 = 9;

    /// All places of a stripe, without bytes: a slice is its number, and rings hold numbers.
    struct Places {
        plans: Vec<(Sender, Plan)>,
        progress: Vec<Progress>,
        /// By receiver, sender and ring: what its slots hold, and both ends of its credit.
        rings: Vec<Held>,
    }

    type Held = (Column, Sender, usize, Vec<Option<u32>>, Inlet, Outlet);

    fn slot(position: u64, slots: u32) -> usize {
        usize::try_from(position % u64::from(slots)).unwrap()
    }

    impl Places {
        fn new((nodes, parity): (usize, Parity), task: Task, slots: u32) -> Self {
            let geometry = Geometry::with_parity(nodes, parity).unwrap();
            let transfers = Transfers::of(task, &geometry, 1).unwrap();
            let columns: Vec<Column> = geometry.columns().collect();
            let mut plans = vec![(Sender::Client, Plan::of_client(&transfers, geometry.data()))];
            let column = |column: &Column| (Sender::Column(*column), Plan::of_column(&transfers, *column));
            plans.extend(columns.iter().map(column));
            let mut progress: Vec<Progress> =
                plans.iter().map(|(_, plan)| Progress::new(plan, SLICES, slots)).collect();
            (0..plans[0].1.origins.len()).for_each(|cell| progress[0].whole(cell));
            let mut all = Vec::new();
            for (from, _) in &plans {
                for to in &columns {
                    for ring in 0..transfers.rings(*from, *to) {
                        let slots_held = vec![None; slots as usize];
                        all.push((*to, *from, ring, slots_held, Inlet::new(slots), Outlet::new(slots)));
                    }
                }
            }
            Self { plans, progress, rings: all }
        }

        fn ring(&self, to: Column, from: Sender, ring: usize) -> usize {
            self.rings.iter().position(|found| (found.0, found.1, found.2) == (to, from, ring)).unwrap()
        }

        /// One thing that a place can do, of those with this number; false if there is none.
        fn act(&mut self, place: usize, which: usize, slots: u32) -> bool {
            let (name, plan) = (self.plans[place].0, self.plans[place].1.clone());
            let kinds = plan.sums.len() + plan.sends.len() + plan.keeps.len() + plan.origins.len();
            if kinds == 0 {
                return false;
            }
            let which = which % kinds;
            if which < plan.sums.len() {
                let next = self.progress[place].next_sum(&plan, which);
                if next.is_some() {
                    self.progress[place].arrived(plan.origins.len() + which);
                }
                return next.is_some();
            }
            let which = which - plan.sums.len();
            if let Some(send) = plan.sends.get(which) {
                let ring = self.ring(send.to, name, send.ring);
                let Some(slice) = self.progress[place].next_send(&plan, which) else { return false };
                let (_, _, _, held, inlet, outlet) = &mut self.rings[ring];
                if !outlet.has_room() {
                    return false;
                }
                let position = outlet.sent();
                let held = &mut held[slot(position, slots)];
                assert_eq!(*held, None, "a slot that somebody needs is used again");
                *held = Some(slice);
                outlet.send();
                let slice_name = SliceName { ring: 0, slice, stripe: 0 };
                inlet.arrive(slice_name, slice).unwrap();
                self.progress[place].posted(which);
                assert!(self.progress[place].sent(which));
                return true;
            }
            let which = which - plan.sends.len();
            if which < plan.keeps.len() {
                let source = plan.keeps[which].source;
                let can = self.progress[place].there(source) > self.progress[place].kept(which);
                if can {
                    self.progress[place].keep(which);
                }
                return can;
            }
            self.receive(place, &plan, which - plan.keeps.len(), slots)
        }

        fn receive(&mut self, place: usize, plan: &Plan, origin: usize, slots: u32) -> bool {
            let progress = &mut self.progress[place];
            if let Origin::Held { .. } = plan.origins[origin] {
                // A slot that is still needed is not read into.
                let there = progress.there(origin);
                let can = there < SLICES && there - progress.tail(plan, origin) < slots;
                if can {
                    progress.arrived(origin);
                }
                return can;
            }
            let (Origin::Arrives { from, ring }, Sender::Column(to)) =
                (plan.origins[origin], self.plans[place].0)
            else {
                return false;
            };
            let ring = self.ring(to, from, ring);
            let progress = &mut self.progress[place];
            let (_, _, _, held, inlet, outlet) = &mut self.rings[ring];
            let mut moved = false;
            if progress.there(origin) < SLICES
                && let Some(arrived) = inlet.take()
            {
                assert_eq!(arrived.name.slice, progress.there(origin));
                progress.arrived(origin);
                moved = true;
            }
            let tail = u64::from(progress.tail(plan, origin));
            // A slice that is not needed any more may be overwritten as soon as the sender knows.
            if let Some(word) = inlet.publish(tail) {
                for position in 0..word {
                    let behind = position + u64::from(slots) >= inlet.arrived();
                    if behind {
                        held[slot(position, slots)] = None;
                    }
                }
                outlet.take_credit(Credit(word)).unwrap();
                moved = true;
            }
            moved
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn whoever_acts_when_every_place_gets_through_and_no_slot_is_used_too_early(
            nodes in 3_usize..8, task in 0..5_usize, slots in 1_u32..6, seed in any::<u64>(),
        ) {
            let tasks = [
                Task::Write(Way::Relay),
                Task::Write(Way::Naive),
                Task::Protect,
                Task::Rebuild(LostMembers::of(&[nodes / 2])),
                Task::Rebuild(LostMembers::of(&[nodes / 2, 0])),
            ];
            let mut places = Places::new((nodes, Parity::TwoD), tasks[task], slots);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut idle = 0;
            while !places.progress.iter().all(Progress::is_through) {
                let (place, which) = (random.usize(..=nodes), random.usize(..1000));
                idle = if places.act(place, which, slots) { 0 } else { idle + 1 };
                prop_assert!(idle < 100_000, "everybody waits");
            }
        }
    }

    #[test]
    fn a_slice_is_needed_until_its_slowest_reader_is_done() {
        let transfers = Transfers::of(Task::Write(Way::Relay), &Geometry::new(5).unwrap(), 0).unwrap();
        let plan = Plan::of_column(&transfers, Column(0));
        let source = plan.readers.iter().position(|readers| readers.len() > 1).unwrap();
        for slowest in &plan.readers[source] {
            let mut progress = Progress::new(&plan, SLICES, SLICES);
            (0..plan.origins.len()).for_each(|origin| progress.whole(origin));
            for reader in plan.readers[source].iter().filter(|reader| *reader != slowest) {
                match *reader {
                    Reader::Sum(sum) => progress.arrived(plan.origins.len() + sum),
                    Reader::Send(send) => {
                        progress.posted(send);
                        assert!(progress.sent(send));
                    }
                    Reader::Keep(keep) => progress.keep(keep),
                }
            }
            assert_eq!(progress.tail(&plan, source), 0, "{slowest:?} still needs it");
        }
    }
}
