//! Ends transactions whose coordinator, the client that runs them, is silent.
//!
//! ```text
//! in_doubt queue --> up to ENDINGS_MAX endings run: each sends messages (ramp's Termination) until all participants have answered
//!      ^                 |
//!      +-----------------+ no progress until the next tick, because a participant is unavailable: other transactions take the turn
//! ```
//!
//! An ending runs for a transaction of a client whose connection is closed, for every unsettled
//! transaction when the node starts, and for a transaction that is unsettled for too long although
//! its client is connected. A transaction in doubt ends as its participants vote. For a committed
//! one, the other participants are informed of the commit.
//!
//! Invariants
//! - At most `ENDINGS_MAX` endings run at a time. An ending stops when its transaction is settled
//!   at this participant.
//! - An ending and the coordinator reach the same outcome, because votes do not change.
//! - This code uses no clock and no wire: its caller passes in times and answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use rackscan_ramp::{
    message::{ParticipantId, Reply},
    termination::{Message, Termination},
    timestamp::Timestamp,
};

use super::in_doubt::InDoubt;
use crate::limits::{ENDINGS_MAX, IN_DOUBT_TIME_MAX};

/// The state of a transaction at this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionState {
    /// Prepared.
    InDoubt,
    /// Committed, and the other participants may not know.
    Committed,
    /// Settled or unknown: there is nothing to do.
    Over,
}

/// A message to a participant about a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutgoingMessage {
    /// The number of its ending, which is never used again.
    pub(super) ending: u64,
    /// The transaction.
    pub(super) timestamp: Timestamp,
    /// The receiver and the request.
    pub(super) message: Message,
}

/// A transaction that is being ended.
#[derive(Debug)]
struct Ending {
    number: u64,
    participants: Vec<ParticipantId>,
    termination: Termination,
    /// Whether any participant has answered since the last tick.
    moves: bool,
}

/// Transactions that wait to be ended, and those that are being ended.
#[derive(Debug)]
pub(super) struct Endings {
    own: ParticipantId,
    in_doubt: InDoubt,
    active: BTreeMap<Timestamp, Ending>,
    next: u64,
    /// The unsettled transactions at the last look, and its time.
    seen: BTreeSet<Timestamp>,
    seen_at: Instant,
}

impl Endings {
    /// No endings yet, for the participant with this id.
    pub(super) fn new(own: ParticipantId, now: Instant) -> Self {
        let (in_doubt, active, seen) = (InDoubt::default(), BTreeMap::new(), BTreeSet::new());
        Self { own, in_doubt, active, next: 0, seen, seen_at: now }
    }

    /// Adds a transaction that is to be ended. `is_open` as in [`InDoubt::add`].
    pub(super) fn add(
        &mut self,
        timestamp: Timestamp,
        mut participants: Vec<ParticipantId>,
        is_open: impl Fn(Timestamp) -> bool,
    ) {
        // This participant is a participant even if the client did not list it: the transaction is
        // prepared here.
        if !participants.contains(&self.own) {
            participants.push(self.own);
        }
        if !self.active.contains_key(&timestamp) {
            self.in_doubt.add(timestamp, participants, is_open);
        }
    }

    /// Whether no transaction waits or is being ended.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.in_doubt.len() == 0
    }

    /// Begins endings up to the maximum. Returns the messages to send.
    pub(super) fn begin(&mut self, standing: impl Fn(Timestamp) -> TransactionState) -> Vec<OutgoingMessage> {
        let mut outgoing = Vec::new();
        while self.active.len() < ENDINGS_MAX {
            let Some((timestamp, participants)) = self.in_doubt.take() else { break };
            let (termination, messages) = match standing(timestamp) {
                TransactionState::InDoubt => Termination::begin(timestamp, &participants),
                TransactionState::Committed => Termination::settle(timestamp, &participants),
                TransactionState::Over => continue,
            };
            self.next += 1;
            let number = self.next;
            outgoing.extend(messages.into_iter().map(|message| OutgoingMessage {
                ending: number,
                timestamp,
                message,
            }));
            self.active.insert(timestamp, Ending { number, participants, termination, moves: true });
        }
        outgoing
    }

    /// The transaction of the ending with this number.
    pub(super) fn timestamp_of(&self, number: u64) -> Option<Timestamp> {
        self.active.iter().find(|(_, ending)| ending.number == number).map(|(timestamp, _)| *timestamp)
    }

    /// Handles an answer. Returns the messages to send next, and whether the answer has decided the
    /// outcome.
    pub(super) fn on_answer(
        &mut self,
        timestamp: Timestamp,
        from: ParticipantId,
        reply: &Reply,
    ) -> (Vec<OutgoingMessage>, bool) {
        let Some(ending) = self.active.get_mut(&timestamp) else { return (Vec::new(), false) };
        let before = ending.termination.decision();
        let messages = ending.termination.heard(from, reply);
        ending.moves = true;
        let number = ending.number;
        let decided = before.is_none() && ending.termination.decision().is_some();
        if ending.termination.ended() {
            self.active.remove(&timestamp);
        }
        let saying = |message| OutgoingMessage { ending: number, timestamp, message };
        (messages.into_iter().map(saying).collect(), decided)
    }

    /// A node is available again: returns the messages to repeat to its participant.
    pub(super) fn on_available(&mut self, participant: ParticipantId) -> Vec<OutgoingMessage> {
        self.repeat_messages(|to| to == participant)
    }

    /// Handles a tick: endings that got no further make room for others; the others repeat messages
    /// that may have been lost.
    pub(super) fn tick(&mut self, standing: impl Fn(Timestamp) -> TransactionState) -> Vec<OutgoingMessage> {
        let stuck: Vec<Timestamp> =
            self.active.iter().filter(|(_, ending)| !ending.moves).map(|(timestamp, _)| *timestamp).collect();
        for timestamp in stuck {
            if let Some(ending) = self.active.remove(&timestamp)
                && standing(timestamp) != TransactionState::Over
            {
                self.in_doubt.add(timestamp, ending.participants, |timestamp| {
                    standing(timestamp) != TransactionState::Over
                });
            }
        }
        self.active.values_mut().for_each(|ending| ending.moves = false);
        let mut outgoing = self.repeat_messages(|_| true);
        outgoing.extend(self.begin(standing));
        outgoing
    }

    fn repeat_messages(&self, to: impl Fn(ParticipantId) -> bool) -> Vec<OutgoingMessage> {
        let outgoing = self.active.iter().flat_map(|(timestamp, ending)| {
            let saying = |message| OutgoingMessage { ending: ending.number, timestamp: *timestamp, message };
            ending.termination.again().into_iter().map(saying)
        });
        outgoing.filter(|saying| to(saying.message.to)).collect()
    }

    /// Adds transactions that have been unsettled for too long, at most once in
    /// [`IN_DOUBT_TIME_MAX`].
    pub(super) fn look_for_old<'t>(
        &mut self,
        now: Instant,
        unsettled: impl Iterator<Item = (Timestamp, &'t [ParticipantId])>,
        standing: impl Fn(Timestamp) -> TransactionState,
    ) {
        if now.saturating_duration_since(self.seen_at) < IN_DOUBT_TIME_MAX {
            return;
        }
        self.seen_at = now;
        let before = std::mem::take(&mut self.seen);
        let mut seen = BTreeSet::new();
        for (timestamp, participants) in unsettled {
            seen.insert(timestamp);
            if before.contains(&timestamp) {
                self.add(timestamp, participants.to_vec(), |timestamp| {
                    standing(timestamp) != TransactionState::Over
                });
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

    const OWN: ParticipantId = ParticipantId(1);
    const OTHER: ParticipantId = ParticipantId(2);

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    fn endings(count: u64) -> Endings {
        let mut endings = Endings::new(OWN, Instant::now());
        (1..=count).for_each(|time| endings.add(at(time), vec![OWN, OTHER], |_| true));
        endings
    }

    fn about(outgoing: &[OutgoingMessage]) -> BTreeSet<u64> {
        outgoing.iter().map(|saying| saying.timestamp.time).collect()
    }

    #[test]
    fn few_are_ended_at_a_time_and_those_that_cannot_be_keep_no_others_waiting() {
        let most = ENDINGS_MAX as u64;
        let mut endings = endings(most + 2);
        assert_eq!(about(&endings.begin(|_| TransactionState::InDoubt)), (1..=most).collect());
        // All but the first get an answer from here, and none from the other participant.
        for time in 2..=most {
            endings.on_answer(at(time), OWN, &Reply::Voted { vote: Vote::Prepared });
        }
        endings.tick(|_| TransactionState::InDoubt);
        endings.on_answer(at(1), OWN, &Reply::Voted { vote: Vote::Prepared });
        let outgoing = endings.tick(|_| TransactionState::InDoubt);
        assert!(about(&outgoing).is_superset(&BTreeSet::from([1, most + 1, most + 2])), "{outgoing:?}");
        assert_eq!(endings.active.len(), ENDINGS_MAX);
    }

    #[test]
    fn what_is_over_is_left_alone_and_what_is_committed_is_told_to_the_others() {
        let mut endings = endings(3);
        let standing = |timestamp: Timestamp| match timestamp.time {
            1 => TransactionState::Over,
            2 => TransactionState::Committed,
            _ => TransactionState::InDoubt,
        };
        let asked: Vec<Request> =
            endings.begin(standing).into_iter().map(|saying| saying.message.request).collect();
        let (commit, inquire) = (Request::Commit { timestamp: at(2) }, Request::Inquire { timestamp: at(3) });
        assert_eq!(asked, [commit.clone(), commit, inquire.clone(), inquire]);
        let (told, decided) = endings.on_answer(at(2), OTHER, &Reply::Committed);
        assert_eq!((told, decided), (vec![], false), "that was known");
        let (told, _) = endings.on_answer(at(2), OWN, &Reply::Committed);
        assert!(told.iter().all(|saying| matches!(saying.message.request, Request::Ended { .. })));
        let (told, decided) = endings.on_answer(at(3), OTHER, &Reply::Voted { vote: Vote::Refused });
        assert_eq!((told.len(), decided), (1, true));
        // The coordinator was quicker, and the other participant says nothing more.
        endings.tick(|_| TransactionState::Over);
        endings.tick(|_| TransactionState::Over);
        assert!(endings.is_empty());
    }

    #[test]
    fn a_participant_that_comes_back_is_asked_at_once() {
        let mut endings = endings(1);
        endings.begin(|_| TransactionState::InDoubt);
        let asked = endings.on_available(OTHER);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].message, Message { to: OTHER, request: Request::Inquire { timestamp: at(1) } });
        assert_eq!(endings.timestamp_of(asked[0].ending), Some(at(1)));
    }

    #[test]
    fn who_does_not_name_this_participant_is_ended_here_as_well() {
        let mut endings = Endings::new(OWN, Instant::now());
        endings.add(at(1), vec![OTHER], |_| true);
        let to: Vec<ParticipantId> =
            endings.begin(|_| TransactionState::InDoubt).iter().map(|saying| saying.message.to).collect();
        assert_eq!(to, [OWN, OTHER]);
    }

    #[test]
    fn what_is_in_doubt_for_long_is_ended_though_its_client_lives() {
        let now = Instant::now();
        let mut endings = Endings::new(OWN, now);
        let participants = [OWN, OTHER];
        let mut look = |time: Duration, unsettled: &[u64]| {
            let unsettled = unsettled.iter().map(|time| (at(*time), &participants[..]));
            endings.look_for_old(now + time, unsettled, |_| TransactionState::InDoubt);
            about(&endings.begin(|_| TransactionState::InDoubt))
        };
        assert!(look(IN_DOUBT_TIME_MAX, &[1]).is_empty(), "for how long is not known");
        assert!(look(IN_DOUBT_TIME_MAX * 3 / 2, &[1]).is_empty(), "not for long enough");
        assert_eq!(look(IN_DOUBT_TIME_MAX * 2, &[1, 2]), [1].into());
        assert_eq!(look(IN_DOUBT_TIME_MAX * 3, &[2]), [2].into());
    }
}
