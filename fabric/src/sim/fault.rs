//! What goes wrong in a simulated network, and what is left afterwards?
//!
//! Invariants
//! - What has landed stays; of what has not, only writes that were reported as done still land,
//!   unless the place that has the memory crashed.
//! - Every survivor learns of a loss, after a delay; its operations in flight fail first.

use std::{collections::BTreeMap, time::Duration};

use super::{
    ANONYMOUS,
    agenda::Due,
    history::What,
    link::{Link, Owner},
    world::World,
};
use crate::error::Ending;

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// All connections of a place are lost and its listener is gone. A place of that name may
    /// listen and connect again.
    Crash {
        /// Name of the place.
        place: String,
    },
    /// Two places lose their connections to each other and cannot make new ones.
    Cut {
        /// Name of one.
        one: String,
        /// Name of the other.
        other: String,
    },
    /// Two places can make connections to each other again. Planned for the moment of a cut, behind
    /// it, the two only lose the connections that they have.
    Repair {
        /// Name of one.
        one: String,
        /// Name of the other.
        other: String,
    },
}

/// When something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the step of this number, counted from 0; [`super::SimNet::steps`] of an undisturbed
    /// run bounds them.
    Step(u64),
    /// After so many operations were accepted anywhere in the network.
    Post(u64),
    /// At this virtual time.
    Time(Duration),
}

/// Faults that were planned for a step or a post, and how many happened by chance.
#[derive(Debug, Default)]
pub(super) struct Plans {
    by_step: BTreeMap<u64, Vec<Fault>>,
    by_post: BTreeMap<u64, Vec<Fault>>,
    by_chance: u32,
}

impl World {
    /// Lets a fault happen at a moment, or now if that is past.
    pub(super) fn plan(&mut self, moment: Moment, fault: Fault) {
        match moment {
            Moment::Step(step) => self.plans.by_step.entry(step).or_default().push(fault),
            Moment::Post(posts) => {
                self.plans.by_post.entry(posts).or_default().push(fault);
                self.fail_after_post();
            }
            Moment::Time(time) => {
                let due_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                self.agenda.enter(due_ns, Due::Fail(fault));
                // Who sleeps on an idle network must come and take that step.
                self.links.values().for_each(Link::ring_both);
            }
        }
    }

    /// Lets happen what was planned for this step, and what chance brings.
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

    /// Lets happen what was planned for so many posts.
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

    /// Lets a fault happen.
    pub(super) fn fail(&mut self, fault: &Fault) {
        match fault {
            Fault::Crash { place } => {
                let place = self.places.number(place);
                self.crash(place);
            }
            Fault::Cut { one, other } => {
                let (one, other) = (self.places.number(one), self.places.number(other));
                self.note((one, other), What::Cut);
                self.places.cut(one, other);
                let between = |places| places == (one, other) || places == (other, one);
                for number in self.links_that(|link| between(link.places(0))) {
                    self.lose(number, "the network between the two places was cut", None);
                }
            }
            Fault::Repair { one, other } => {
                let (one, other) = (self.places.number(one), self.places.number(other));
                self.note((one, other), What::Repaired);
                self.places.repair(one, other);
            }
        }
    }

    fn links_that(&self, hold: impl Fn(&Link) -> bool) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| hold(link)).map(|(number, _)| *number).collect()
    }

    fn crash(&mut self, place: usize) {
        self.note((place, place), What::Crashed);
        let reason = format!("place '{}' crashed", self.places.name(place));
        for number in self.links_that(|link| link.ends.iter().any(|end| end.place == place)) {
            self.lose(number, &reason, Some(place));
        }
        // Its memory is gone, and with it what was still on the way there, reported as done or not.
        self.transfers.retain(|_, transfer| transfer.owner != place);
        self.updates.retain(|_, update| update.owner != place);
        if let Some(place) = self.places.get(place) {
            place.crashes += 1;
            place.listening = None;
        }
    }

    /// A connection is lost. The ends at a crashed place end at once, the others learn it after a
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
            self.note(places, What::Lost);
        }
    }

    /// Forgets a link that nobody holds any more.
    fn forget_if_abandoned(&mut self, number: u64) {
        let gone = |link: &Link| link.ends.iter().all(|end| end.owner == Owner::Gone);
        if self.links.get(&number).is_some_and(gone) {
            self.links.remove(&number);
        }
    }
}
