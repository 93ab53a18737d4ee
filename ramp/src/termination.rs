//! Ends a transaction whose coordinator has failed, by the votes of its participants.
//!
//! ```text
//! ask all participants for their votes
//!   one has committed, or all have prepared   -> commit: send COMMIT until all participants have confirmed -> ended
//!   one has refused, which is a promise never -> abort: send ABORT to the participants that have prepared
//!   to prepare the transaction
//! ```
//!
//! Any participant that has prepared a transaction may do this, at any time. Several may do it at
//! once: votes never change, so all of them reach the same outcome.
//!
//! Invariants
//! - Only a participant asks that has the transaction in doubt. If the coordinator ends the
//!   transaction before the answers arrive, other participants may already have forgotten it, and
//!   seem to refuse it. But then the participant that asked knows the outcome, too, and ignores the
//!   decision to abort.
//! - Only votes decide. A participant that does not answer is asked again, and only this
//!   transaction waits for it.
//! - `Ended` is sent only after all participants have durably committed.

use crate::{
    message::{ParticipantId, Reply, Request, Vote},
    timestamp::Timestamp,
};
use std::collections::BTreeMap;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All have prepared it.
    Commit,
    /// One has refused.
    Abort,
}

/// A request and its recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The participant.
    pub to: ParticipantId,
    /// The request.
    pub request: Request,
}

/// The termination of one transaction, in progress.
#[derive(Clone, Debug)]
pub struct Termination {
    timestamp: Timestamp,
    /// The participants and their votes, if known.
    votes: BTreeMap<ParticipantId, Option<Vote>>,
    decision: Option<Decision>,
    ended: bool,
}

impl Termination {
    /// Terminates a transaction that wrote at `participants`. Returns the first messages. The
    /// participant that begins this also asks itself: like every other vote, its own counts only
    /// once it is durable.
    #[must_use]
    pub fn begin(timestamp: Timestamp, participants: &[ParticipantId]) -> (Self, Vec<Message>) {
        let votes = participants.iter().map(|participant| (*participant, None)).collect();
        let this = Self { timestamp, votes, decision: None, ended: false };
        let messages = this.again();
        (this, messages)
    }

    /// Tells all participants about a transaction that is known to be committed, so that it may be
    /// forgotten. Returns the first messages.
    #[must_use]
    pub fn settle(timestamp: Timestamp, participants: &[ParticipantId]) -> (Self, Vec<Message>) {
        let votes = participants.iter().map(|participant| (*participant, Some(Vote::Prepared))).collect();
        let this = Self { timestamp, votes, decision: Some(Decision::Commit), ended: false };
        let messages = this.again();
        (this, messages)
    }

    /// The transaction.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// How it ends, if that is known.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The messages to those that have not answered: at first, and again when they can be reached
    /// again.
    #[must_use]
    pub fn again(&self) -> Vec<Message> {
        let open = |vote: &Option<Vote>| match self.decision {
            None => vote.is_none(),
            Some(Decision::Commit) => *vote != Some(Vote::Committed),
            Some(Decision::Abort) => *vote != Some(Vote::Refused),
        };
        let timestamp = self.timestamp;
        let request = match self.decision {
            None => Request::Inquire { timestamp },
            Some(Decision::Commit) => Request::Commit { timestamp },
            Some(Decision::Abort) => Request::Abort { timestamp },
        };
        let participants = self.votes.iter().filter(|(_, vote)| !self.ended && open(vote));
        participants.map(|(participant, _)| Message { to: *participant, request: request.clone() }).collect()
    }

    /// Processes an answer, and returns the next messages.
    #[must_use]
    pub fn heard(&mut self, from: ParticipantId, reply: &Reply) -> Vec<Message> {
        let vote = match reply {
            // The participant that asks is in doubt, or has decided.
            Reply::Voted { vote: Vote::Forgotten } => Vote::Refused,
            Reply::Voted { vote } => *vote,
            Reply::Committed => Vote::Committed,
            Reply::Aborted => Vote::Refused,
            _ => return Vec::new(),
        };
        let Some(known) = self.votes.get_mut(&from).filter(|_| !self.ended) else { return Vec::new() };
        // A late answer to an earlier request must not replace a known commit.
        if *known != Some(Vote::Committed) {
            *known = Some(vote);
        }
        // The participant that refused had forgotten it: it has ended everywhere since the request.
        let ended_since = vote == Vote::Committed && self.decision == Some(Decision::Abort);
        let decided = (self.decision.is_none() || ended_since) && self.decide();
        let all = |wanted| self.votes.values().all(|vote| *vote == Some(wanted));
        match self.decision {
            Some(Decision::Commit) if all(Vote::Committed) => {
                self.ended = true;
                let request = Request::Ended { timestamps: vec![self.timestamp] };
                self.votes
                    .keys()
                    .map(|participant| Message { to: *participant, request: request.clone() })
                    .collect()
            }
            Some(Decision::Abort) if all(Vote::Refused) => {
                self.ended = true;
                Vec::new()
            }
            _ if decided => self.again(),
            _ => Vec::new(),
        }
    }

    /// Decides if the votes allow it. Returns whether they did.
    fn decide(&mut self) -> bool {
        let any = |wanted| self.votes.values().any(|vote| *vote == Some(wanted));
        let all = self.votes.values().all(Option::is_some);
        self.decision = if any(Vote::Committed) || all && !any(Vote::Refused) {
            Some(Decision::Commit)
        } else if any(Vote::Refused) {
            Some(Decision::Abort)
        } else {
            None
        };
        self.decision.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::ClientId;

    const TIMESTAMP: Timestamp = Timestamp { time: 5, client: ClientId(1) };

    fn participants() -> Vec<ParticipantId> {
        [0, 1, 2].map(ParticipantId).to_vec()
    }

    fn requests(messages: &[Message]) -> Vec<(u16, Request)> {
        messages.iter().map(|message| (message.to.0, message.request.clone())).collect()
    }

    fn voted(vote: Vote) -> Reply {
        Reply::Voted { vote }
    }

    const INQUIRE: Request = Request::Inquire { timestamp: TIMESTAMP };
    const COMMIT: Request = Request::Commit { timestamp: TIMESTAMP };
    const ABORT: Request = Request::Abort { timestamp: TIMESTAMP };

    #[test]
    fn all_have_prepared_so_it_is_committed_and_forgotten_when_all_know() {
        let (mut ending, asked) = Termination::begin(TIMESTAMP, &participants());
        assert_eq!(requests(&asked), [(0, INQUIRE), (1, INQUIRE), (2, INQUIRE)]);
        assert_eq!(ending.heard(ParticipantId(1), &voted(Vote::Prepared)), []);
        assert_eq!(ending.heard(ParticipantId(0), &voted(Vote::Prepared)), []);
        assert_eq!((ending.decision(), requests(&ending.again())), (None, vec![(2, INQUIRE)]));
        let told = ending.heard(ParticipantId(2), &voted(Vote::Prepared));
        assert_eq!(requests(&told), [(0, COMMIT), (1, COMMIT), (2, COMMIT)]);
        assert_eq!(ending.decision(), Some(Decision::Commit));
        for participant in [1, 0] {
            assert_eq!(ending.heard(ParticipantId(participant), &Reply::Committed), []);
        }
        assert_eq!(requests(&ending.again()), [(2, COMMIT)]);
        let settled = ending.heard(ParticipantId(2), &Reply::Committed);
        assert_eq!((settled.len(), ending.ended(), ending.again()), (3, true, vec![]));
    }

    #[test]
    fn one_refuses_so_it_is_aborted() {
        let (mut ending, _) = Termination::begin(TIMESTAMP, &participants());
        let told = ending.heard(ParticipantId(2), &voted(Vote::Refused));
        assert_eq!(requests(&told), [(0, ABORT), (1, ABORT)], "0 has not answered, and is told, too");
        assert_eq!(ending.heard(ParticipantId(0), &voted(Vote::Prepared)), []);
        assert_eq!(ending.heard(ParticipantId(0), &Reply::Aborted), []);
        assert_eq!((ending.heard(ParticipantId(1), &Reply::Aborted), ending.ended()), (vec![], true));
        assert_eq!(ending.decision(), Some(Decision::Abort));
    }

    #[test]
    fn one_has_committed_so_nobody_else_needs_to_be_asked() {
        let (mut ending, _) = Termination::begin(TIMESTAMP, &participants());
        let told = ending.heard(ParticipantId(0), &voted(Vote::Committed));
        assert_eq!(requests(&told), [(1, COMMIT), (2, COMMIT)]);
    }

    #[test]
    fn a_transaction_of_one_participant_is_committed_if_it_is_prepared() {
        let (mut ending, _) = Termination::begin(TIMESTAMP, &[ParticipantId(1)]);
        let told = ending.heard(ParticipantId(1), &voted(Vote::Prepared));
        assert_eq!((ending.decision(), requests(&told)), (Some(Decision::Commit), vec![(1, COMMIT)]));
    }

    #[test]
    fn all_know_already_so_there_is_nothing_more_to_say() {
        let (mut ending, _) = Termination::begin(TIMESTAMP, &[ParticipantId(1)]);
        let settled = ending.heard(ParticipantId(1), &voted(Vote::Committed));
        assert_eq!(requests(&settled), [(1, Request::Ended { timestamps: vec![TIMESTAMP] })]);
        assert!(ending.ended());
        let (mut ending, _) = Termination::begin(TIMESTAMP, &[ParticipantId(1)]);
        assert_eq!((ending.heard(ParticipantId(1), &voted(Vote::Refused)), ending.ended()), (vec![], true));
    }

    #[test]
    fn it_ended_while_it_was_asked_about() {
        let (mut ending, _) = Termination::begin(TIMESTAMP, &[ParticipantId(1), ParticipantId(2)]);
        let told = ending.heard(ParticipantId(2), &voted(Vote::Refused));
        assert_eq!(requests(&told), [(1, ABORT)], "2 has forgotten it");
        let told = ending.heard(ParticipantId(1), &Reply::Committed);
        assert_eq!(requests(&told), [(2, COMMIT)]);
        assert_eq!((ending.heard(ParticipantId(2), &Reply::Committed).len(), ending.ended()), (2, true));
        assert_eq!(ending.decision(), Some(Decision::Commit));
    }

    #[test]
    fn what_is_committed_here_is_pushed_until_all_know() {
        let (mut ending, told) = Termination::settle(TIMESTAMP, &participants());
        assert_eq!(told.len(), 3);
        let settled: Vec<Message> = participants()
            .iter()
            .flat_map(|participant| ending.heard(*participant, &Reply::Committed))
            .collect();
        assert_eq!((settled.len(), ending.ended()), (3, true));
    }
}
