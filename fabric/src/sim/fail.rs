//! Carries out the faults of a simulated network, and decides which bytes and messages survive
//! them.
//!
//! Invariants
//! - Bytes that have become visible stay. Of the others, only writes whose completion was reported
//!   still become visible, unless the place (a simulated process) that owns the memory crashed.
//! - Every survivor learns of a loss after a delay. Its operations in flight fail first.

use az::SaturatingAs;

use super::{
    agenda::Due,
    fault::{Fault, Moment},
    history::TraceEvent,
    link::{Link, Owner},
    place::ANONYMOUS,
    world::World,
};
use crate::error::Ending;

impl World {
    /// Plans a fault for a moment, or for now if that is past.
    pub(super) fn plan(&mut self, moment: Moment, fault: Fault) {
        match moment {
            Moment::Step(step) => self.plans.by_step.entry(step).or_default().push(fault),
            Moment::Post(posts) => {
                self.plans.by_post.entry(posts).or_default().push(fault);
                self.fail_after_post();
            }
            Moment::Time(time) => {
                let due_ns = time.as_nanos().saturating_as::<u64>();
                self.agenda.enter(due_ns, Due::Fail(fault));
                // An owner that sleeps on an idle network must wake to take that step.
                self.links.values().for_each(Link::ring_both);
            }
        }
    }

    /// Carries out the faults that were planned for this step, and random ones.
    pub(super) fn fail_before_step(&mut self) {
        let later = self.plans.by_step.split_off(&(self.history.steps() + 1));
        let due = std::mem::replace(&mut self.plans.by_step, later);
        for fault in due.into_values().flatten() {
            self.fail(&fault);
        }
        let chance = &self.config.chance;
        if self.plans.by_chance >= chance.faults_max {
            return;
        }
        let (loss, crash) = (chance.loss_per_million, chance.crash_per_million);
        if self.random.chance(loss) {
            self.lose_by_chance();
        }
        if self.random.chance(crash) {
            self.crash_by_chance();
        }
    }

    /// Carries out the faults that were planned for this number of posts.
    pub(super) fn fail_after_post(&mut self) {
        let later = self.plans.by_post.split_off(&(self.posts + 1));
        let due = std::mem::replace(&mut self.plans.by_post, later);
        for fault in due.into_values().flatten() {
            self.fail(&fault);
        }
    }

    fn lose_by_chance(&mut self) {
        let live = |(number, link): (&u64, &Link)| link.lost.is_none().then_some(*number);
        let live: Vec<u64> = self.links.iter().filter_map(live).collect();
        if let Some(number) = live.get(self.random.index(live.len())) {
            self.plans.by_chance += 1;
            self.lose(*number, "the network failed", None);
        }
    }

    fn crash_by_chance(&mut self) {
        let mortal = &self.config.chance.mortal;
        let names = self.places.names().into_iter();
        let may_crash = |name: &&str| {
            if mortal.is_empty() { *name != ANONYMOUS } else { mortal.iter().any(|mortal| mortal == name) }
        };
        let candidates: Vec<String> = names.filter(may_crash).map(str::to_owned).collect();
        if let Some(place) = candidates.get(self.random.index(candidates.len())) {
            self.plans.by_chance += 1;
            self.fail(&Fault::Crash { place: place.clone() });
        }
    }

    /// Carries out a fault.
    pub(super) fn fail(&mut self, fault: &Fault) {
        match fault {
            Fault::Crash { place } => {
                let place = self.places.number(place);
                self.crash(place);
            }
            Fault::Cut { one, other } => {
                let (one, other) = (self.places.number(one), self.places.number(other));
                self.note((one, other), TraceEvent::Cut);
                self.places.cut(one, other);
                let between = |places| places == (one, other) || places == (other, one);
                for number in self.links_that(|link| between(link.places(0))) {
                    self.lose(number, "the network between the two places was cut", None);
                }
            }
            Fault::Repair { one, other } => {
                let (one, other) = (self.places.number(one), self.places.number(other));
                self.note((one, other), TraceEvent::Repaired);
                self.places.repair(one, other);
            }
        }
    }

    fn links_that(&self, hold: impl Fn(&Link) -> bool) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| hold(link)).map(|(number, _)| *number).collect()
    }

    fn crash(&mut self, place: usize) {
        self.note((place, place), TraceEvent::Crashed);
        let reason = format!("place '{}' crashed", self.places.name(place));
        for number in self.links_that(|link| link.ends.iter().any(|end| end.place == place)) {
            self.lose(number, &reason, Some(place));
        }
        // Its memory is gone, and with it all transfers to it, reported as done or not.
        self.transfers.retain(|_, transfer| transfer.owner != place);
        self.updates.retain(|_, update| update.owner != place);
        if let Some(place) = self.places.get(place) {
            place.crashes += 1;
            place.listening = None;
        }
    }

    /// Loses a connection. Ends at a crashed place end at once; the others learn of it after a
    /// delay.
    fn lose(&mut self, number: u64, reason: &str, crashed: Option<usize>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.lost.is_none() {
            link.lost = Some(reason.to_owned());
            self.note_loss(number);
        }
        self.abandon_transfers(|transfer| transfer.link == number);
        for end in [0, 1] {
            let Some(link) = self.links.get_mut(&number) else { return };
            let ours = &mut link.ends[end];
            if crashed == Some(ours.place) {
                if ours.owner == Owner::Awaited {
                    ours.owner = Owner::Gone;
                }
                self.end(number, end, &Ending::Lost { reason: reason.to_owned() });
            } else if ours.ending.is_none() && ours.owner != Owner::Gone {
                let due_ns = self.agenda.now_ns() + self.random.nanoseconds(&self.config.notice);
                self.enter(number, due_ns, Due::Notice { link: number, end });
            }
        }
        self.forget_if_abandoned(number);
    }

    fn note_loss(&mut self, number: u64) {
        if let Some(places) = self.links.get(&number).map(|link| link.places(0)) {
            self.note(places, TraceEvent::Lost);
        }
    }

    /// Removes a link of which nobody holds an end.
    fn forget_if_abandoned(&mut self, number: u64) {
        let gone = |link: &Link| link.ends.iter().all(|end| end.owner == Owner::Gone);
        if self.links.get(&number).is_some_and(gone) {
            self.links.remove(&number);
        }
    }
}
