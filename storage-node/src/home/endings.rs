//! How does a home end transactions whose coordinator says no more?
//!
//! ```text
//! orphans --in turn, some at a time--> ramp's Termination: what to say to whom, until all have answered --> over
//!    ^-------- nothing new for a tick: a home is away, and others have their turn -------/
//! ```
//!
//! Which they are: what a client leaves when its connection goes, all that is unsettled when the
//! node starts, and what has been unsettled for too long though its client's connection lives.
//! Those in doubt are ended as their homes vote; of those that are committed the other homes are
//! told.
//!
//! Invariants
//! - At most `ENDINGS_MAX` at a time; one that is not open here any more is not gone on with.
//! - Whoever ends a transaction that its coordinator ends, too, comes to the same end: votes do not
//!   change.
//! - Neither clock nor wire: times and answers come from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use rackscan_ramp::{
    message::{HomeId, Reply},
    termination::{Message, Termination},
    timestamp::Timestamp,
};

use super::orphans::Orphans;
use crate::limits::{ENDINGS_MAX, IN_DOUBT_TIME_MAX};

/// How a transaction stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Prepared.
    InDoubt,
    /// Committed, and the others may not know.
    Committed,
    /// Nothing is to be done about it.
    Over,
}

/// What is to be said about a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Saying {
    /// The number of its ending, which is never used again.
    pub(super) ending: u64,
    /// Which one.
    pub(super) timestamp: Timestamp,
    /// To whom, and what.
    pub(super) message: Message,
}

/// A transaction that is being ended.
#[derive(Debug)]
struct Ending {
    number: u64,
    homes: Vec<HomeId>,
    termination: Termination,
    /// Whether anybody has answered since the last tick.
    moves: bool,
}

/// Transactions that are to be ended, and those that are being ended.
#[derive(Debug)]
pub(super) struct Endings {
    own: HomeId,
    orphans: Orphans,
    active: BTreeMap<Timestamp, Ending>,
    next: u64,
    /// What was unsettled when that was last looked at.
    seen: BTreeSet<Timestamp>,
    seen_at: Instant,
}

impl Endings {
    /// None yet, of the home with this id.
    pub(super) fn new(own: HomeId, now: Instant) -> Self {
        let (orphans, active, seen) = (Orphans::default(), BTreeMap::new(), BTreeSet::new());
        Self { own, orphans, active, next: 0, seen, seen_at: now }
    }

    /// One more is to be ended. `is_open` as in [`Orphans::add`].
    pub(super) fn add(
        &mut self,
        timestamp: Timestamp,
        mut homes: Vec<HomeId>,
        is_open: impl Fn(Timestamp) -> bool,
    ) {
        // Who leaves its home out is not believed: it is prepared here.
        if !homes.contains(&self.own) {
            homes.push(self.own);
        }
        if !self.active.contains_key(&timestamp) {
            self.orphans.add(timestamp, homes, is_open);
        }
    }

    /// Whether there is anything that time may bring further.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.orphans.len() == 0
    }

    /// Begins with as many as may be ended at a time.
    pub(super) fn begin(&mut self, standing: impl Fn(Timestamp) -> Standing) -> Vec<Saying> {
        let mut sayings = Vec::new();
        while self.active.len() < ENDINGS_MAX {
            let Some((timestamp, homes)) = self.orphans.take() else { break };
            let (termination, messages) = match standing(timestamp) {
                Standing::InDoubt => Termination::begin(timestamp, &homes),
                Standing::Committed => Termination::settle(timestamp, &homes),
                Standing::Over => continue,
            };
            self.next += 1;
            let number = self.next;
            sayings.extend(messages.into_iter().map(|message| Saying { ending: number, timestamp, message }));
            self.active.insert(timestamp, Ending { number, homes, termination, moves: true });
        }
        sayings
    }

    /// Of which transaction this ending is.
    pub(super) fn timestamp_of(&self, number: u64) -> Option<Timestamp> {
        self.active.iter().find(|(_, ending)| ending.number == number).map(|(timestamp, _)| *timestamp)
    }

    /// A home has answered; what is to be said then, and whether that has decided how the
    /// transaction ends.
    pub(super) fn heard(&mut self, timestamp: Timestamp, from: HomeId, reply: &Reply) -> (Vec<Saying>, bool) {
        let Some(ending) = self.active.get_mut(&timestamp) else { return (Vec::new(), false) };
        let before = ending.termination.decision();
        let messages = ending.termination.heard(from, reply);
        ending.moves = true;
        let number = ending.number;
        let decided = before.is_none() && ending.termination.decision().is_some();
        if ending.termination.ended() {
            self.active.remove(&timestamp);
        }
        let saying = |message| Saying { ending: number, timestamp, message };
        (messages.into_iter().map(saying).collect(), decided)
    }

    /// A node can be reached again: what is to be said to its home.
    pub(super) fn back(&mut self, home: HomeId) -> Vec<Saying> {
        self.again(|to| to == home)
    }

    /// Some time has gone by: those that did not get further make room for others, those that did
    /// are asked about again where that may have been lost.
    pub(super) fn tick(&mut self, standing: impl Fn(Timestamp) -> Standing) -> Vec<Saying> {
        let stuck: Vec<Timestamp> =
            self.active.iter().filter(|(_, ending)| !ending.moves).map(|(timestamp, _)| *timestamp).collect();
        for timestamp in stuck {
            if let Some(ending) = self.active.remove(&timestamp)
                && standing(timestamp) != Standing::Over
            {
                self.orphans.add(timestamp, ending.homes, |timestamp| standing(timestamp) != Standing::Over);
            }
        }
        self.active.values_mut().for_each(|ending| ending.moves = false);
        let mut sayings = self.again(|_| true);
        sayings.extend(self.begin(standing));
        sayings
    }

    fn again(&self, to: impl Fn(HomeId) -> bool) -> Vec<Saying> {
        let sayings = self.active.iter().flat_map(|(timestamp, ending)| {
            let saying = |message| Saying { ending: ending.number, timestamp: *timestamp, message };
            ending.termination.again().into_iter().map(saying)
        });
        sayings.filter(|saying| to(saying.message.to)).collect()
    }

    /// Looks for what has been unsettled for too long, at most once in [`IN_DOUBT_TIME_MAX`].
    pub(super) fn look_for_old<'t>(
        &mut self,
        now: Instant,
        unsettled: impl Iterator<Item = (Timestamp, &'t [HomeId])>,
        standing: impl Fn(Timestamp) -> Standing,
    ) {
        if now.saturating_duration_since(self.seen_at) < IN_DOUBT_TIME_MAX {
            return;
        }
        self.seen_at = now;
        let before = std::mem::take(&mut self.seen);
        let mut seen = BTreeSet::new();
        for (timestamp, homes) in unsettled {
            seen.insert(timestamp);
            if before.contains(&timestamp) {
                self.add(timestamp, homes.to_vec(), |timestamp| standing(timestamp) != Standing::Over);
            }
        }
        self.seen = seen;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use rackscan_ramp::{message::Request, message::Vote, timestamp::ClientId};

    const OWN: HomeId = HomeId(1);
    const OTHER: HomeId = HomeId(2);

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    fn endings(count: u64) -> Endings {
        let mut endings = Endings::new(OWN, Instant::now());
        (1..=count).for_each(|time| endings.add(at(time), vec![OWN, OTHER], |_| true));
        endings
    }

    fn about(sayings: &[Saying]) -> BTreeSet<u64> {
        sayings.iter().map(|saying| saying.timestamp.time).collect()
    }

    #[test]
    fn few_are_ended_at_a_time_and_those_that_cannot_be_keep_no_others_waiting() {
        let most = ENDINGS_MAX as u64;
        let mut endings = endings(most + 2);
        assert_eq!(about(&endings.begin(|_| Standing::InDoubt)), (1..=most).collect());
        // All but the first get an answer from here, and none from the other home.
        for time in 2..=most {
            endings.heard(at(time), OWN, &Reply::Voted { vote: Vote::Prepared });
        }
        endings.tick(|_| Standing::InDoubt);
        endings.heard(at(1), OWN, &Reply::Voted { vote: Vote::Prepared });
        let sayings = endings.tick(|_| Standing::InDoubt);
        assert!(about(&sayings).is_superset(&BTreeSet::from([1, most + 1, most + 2])), "{sayings:?}");
        assert_eq!(endings.active.len(), ENDINGS_MAX);
    }

    #[test]
    fn what_is_over_is_left_alone_and_what_is_committed_is_told_to_the_others() {
        let mut endings = endings(3);
        let standing = |timestamp: Timestamp| match timestamp.time {
            1 => Standing::Over,
            2 => Standing::Committed,
            _ => Standing::InDoubt,
        };
        let asked: Vec<Request> =
            endings.begin(standing).into_iter().map(|saying| saying.message.request).collect();
        let (commit, inquire) = (Request::Commit { timestamp: at(2) }, Request::Inquire { timestamp: at(3) });
        assert_eq!(asked, [commit.clone(), commit, inquire.clone(), inquire]);
        let (told, decided) = endings.heard(at(2), OTHER, &Reply::Committed);
        assert_eq!((told, decided), (vec![], false), "that was known");
        let (told, _) = endings.heard(at(2), OWN, &Reply::Committed);
        assert!(told.iter().all(|saying| matches!(saying.message.request, Request::Ended { .. })));
        let (told, decided) = endings.heard(at(3), OTHER, &Reply::Voted { vote: Vote::Refused });
        assert_eq!((told.len(), decided), (1, true));
        // The coordinator was quicker, and the other home says nothing more.
        endings.tick(|_| Standing::Over);
        endings.tick(|_| Standing::Over);
        assert!(endings.is_empty());
    }

    #[test]
    fn a_home_that_comes_back_is_asked_at_once() {
        let mut endings = endings(1);
        endings.begin(|_| Standing::InDoubt);
        let asked = endings.back(OTHER);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].message, Message { to: OTHER, request: Request::Inquire { timestamp: at(1) } });
        assert_eq!(endings.timestamp_of(asked[0].ending), Some(at(1)));
    }

    #[test]
    fn who_does_not_name_this_home_is_ended_here_as_well() {
        let mut endings = Endings::new(OWN, Instant::now());
        endings.add(at(1), vec![OTHER], |_| true);
        let to: Vec<HomeId> =
            endings.begin(|_| Standing::InDoubt).iter().map(|saying| saying.message.to).collect();
        assert_eq!(to, [OWN, OTHER]);
    }

    #[test]
    fn what_is_in_doubt_for_long_is_ended_though_its_client_lives() {
        let now = Instant::now();
        let mut endings = Endings::new(OWN, now);
        let homes = [OWN, OTHER];
        let mut look = |time: Duration, unsettled: &[u64]| {
            let unsettled = unsettled.iter().map(|time| (at(*time), &homes[..]));
            endings.look_for_old(now + time, unsettled, |_| Standing::InDoubt);
            about(&endings.begin(|_| Standing::InDoubt))
        };
        assert!(look(IN_DOUBT_TIME_MAX, &[1]).is_empty(), "for how long is not known");
        assert!(look(IN_DOUBT_TIME_MAX * 3 / 2, &[1]).is_empty(), "not for long enough");
        assert_eq!(look(IN_DOUBT_TIME_MAX * 2, &[1, 2]), [1].into());
        assert_eq!(look(IN_DOUBT_TIME_MAX * 3, &[2]), [2].into());
    }
}
