//! Drives one transaction to its end.
//!
//! Invariants
//! - Every transaction ends with its coordinator's outcome, at the latest at the deadline.
//! - A participant that became unavailable before its part was sent never has a part in the
//!   transaction: the coordinator treats it as a refusal.

use std::time::Instant;

use rackscan_device::Wait;
use rackscan_ramp::{
    algorithm::{
        Abortion, Algorithm, Coordinator, Event as CoordinatorEvent, Interruption, Message, Outcome, Step,
    },
    item::Key,
    message::{ParticipantId, Refusal, Reply, Request},
    timestamp::Timestamp,
};

use super::{
    Session, TransactionError, follower_event::FollowerEvent, participant::Purpose,
    running::RunningTransaction,
};
use crate::{LineEvent, limits::AWAITED_LOOK_PERIOD};

impl Session {
    /// Drives a transaction to its end.
    pub(super) fn drive(
        &mut self,
        coordinator: Coordinator,
        messages: Vec<Message>,
        deadline: Instant,
    ) -> (Outcome, RunningTransaction) {
        self.runs += 1;
        let run = RunningTransaction {
            number: self.runs,
            coordinator,
            outcome: None,
            commits: false,
            one_sided: 0,
            unavailable: None,
            failure: None,
        };
        self.coordinator_events.clear();
        self.run = Some(run);
        self.post(messages);
        loop {
            while let Some(event) = self.coordinator_events.pop_front() {
                self.step(event);
            }
            if let Some(run) = self.run.take_if(|run| run.outcome.is_some()) {
                return self.ended(run);
            }
            if Instant::now() >= deadline || self.run.as_ref().is_some_and(|run| run.failure.is_some()) {
                self.coordinator_events.push_back(CoordinatorEvent::GiveUp);
            } else {
                self.wait(deadline);
            }
        }
    }

    fn ended(&mut self, mut run: RunningTransaction) -> (Outcome, RunningTransaction) {
        self.coordinator_events.clear();
        let given_up = || Outcome::Interrupted { why: Interruption::GivenUp };
        let outcome = run.outcome.take().unwrap_or_else(given_up);
        self.lines.release();
        (outcome, run)
    }

    fn step(&mut self, event: CoordinatorEvent) {
        let Some(run) = self.run.as_mut().filter(|run| run.outcome.is_none()) else { return };
        let Step { messages, outcome } = run.coordinator.step(event);
        run.outcome = outcome;
        run.commits |= messages.iter().any(|message| matches!(message.request, Request::Commit { .. }));
        self.post(messages);
    }

    /// Whether the transaction of this number is running.
    pub(super) fn is_running(&self, number: u64) -> bool {
        self.run.as_ref().is_some_and(|run| run.number == number && run.outcome.is_none())
    }

    /// Queues an event for the coordinator, if the transaction of this number is running.
    pub(super) fn notify(&mut self, number: u64, event: CoordinatorEvent) {
        if self.is_running(number) {
            self.coordinator_events.push_back(event);
        }
    }

    /// Counts keys of the present transaction that were read one-sidedly.
    pub(super) fn count_one_sided(&mut self, keys: usize) {
        if let Some(run) = &mut self.run {
            run.one_sided += keys;
        }
    }

    /// Fails the transaction of this number.
    pub(super) fn fail(&mut self, number: u64, error: TransactionError) {
        if let Some(run) = self.run.as_mut().filter(|run| run.number == number) {
            run.failure.get_or_insert(error);
        }
    }

    /// Fails the transaction or the following attempt that a request belongs to.
    pub(super) fn fail_purpose(&mut self, purpose: Purpose, error: TransactionError) {
        match purpose {
            Purpose::Run(number) => self.fail(number, error),
            Purpose::Follow(attempt) => self.notify_follower(FollowerEvent::Failed { attempt, error }),
            _ => {}
        }
    }

    /// Queues an event for the follower, if there is one.
    pub(super) fn notify_follower(&mut self, news: FollowerEvent) {
        if let Some(all) = &mut self.follower_events {
            all.push_back(news);
        }
    }

    /// Handles a request that was not sent because the participant is unavailable.
    pub(super) fn not_sent(&mut self, at: usize, purpose: Purpose, request: Option<Request>) {
        self.missed_an_end = true;
        let (participant, Purpose::Run(number)) = (self.participants[at].id, purpose) else { return };
        let reason = self.lines.unavailable(at).unwrap_or("the connection ended").to_owned();
        if let Some(run) = self.run.as_mut().filter(|run| run.number == number) {
            run.unavailable.get_or_insert((participant, reason));
        }
        let refused = |timestamp: Timestamp| {
            let reply = Reply::Refused { why: Refusal::Promised { timestamp } };
            CoordinatorEvent::Reply { from: participant, reply }
        };
        let event = match request {
            Some(Request::Prepare { part, .. } | Request::Put { part, .. }) => refused(part.timestamp),
            _ => CoordinatorEvent::Lost { participant },
        };
        self.notify(number, event);
        self.stop_waiting_for(number);
    }

    /// Waits for events until the deadline, handles them, and sends waiting requests.
    pub(super) fn wait(&mut self, deadline: Instant) {
        let rests = self.participants.iter().filter_map(|participant| participant.rests_until).min();
        self.take_events(Wait::Until(rests.map_or(deadline, |rests| rests.min(deadline))));
        (0..self.participants.len()).for_each(|at| self.pump(at));
    }

    pub(super) fn take_events(&mut self, wait: Wait) {
        self.missed_an_end = false;
        let mut events = std::mem::take(&mut self.events);
        self.lines.poll(wait, &mut events);
        self.lines.hold();
        for event in events.drain(..) {
            self.heard(event);
        }
        self.events = events;
    }

    fn heard(&mut self, event: LineEvent) {
        match event {
            LineEvent::Reply { node, tag, outcome } => self.replied(node, tag, outcome),
            LineEvent::Read { node: at, is_done, .. } if self.follower_events.is_some() => {
                self.notify_follower(FollowerEvent::Read { at, is_done });
            }
            LineEvent::Read { node, tag, is_done } => self.slot_read(node, tag, is_done),
            LineEvent::Lost { node, .. } => self.lost(node),
            LineEvent::Back { node } => self.back(node),
        }
    }

    fn lost(&mut self, at: usize) {
        let Some(participant) = self.participants.get_mut(at) else { return };
        let (id, unsent) = (participant.id, participant.lost());
        for waiting in unsent {
            self.not_sent(at, waiting.purpose, waiting.request);
        }
        let Some(run) = &mut self.run else { return };
        let reason = self.lines.unavailable(at).unwrap_or("the connection ended").to_owned();
        run.unavailable.get_or_insert((id, reason));
        let number = run.number;
        self.notify(number, CoordinatorEvent::Lost { participant: id });
        self.stop_waiting_for(number);
    }

    /// Stops waiting for an unavailable participant if the transaction is committed, or if the
    /// algorithm has no way to learn its outcome later.
    fn stop_waiting_for(&mut self, number: u64) {
        if self.algorithm == Algorithm::None || self.run.as_ref().is_some_and(|run| run.commits) {
            self.notify(number, CoordinatorEvent::GiveUp);
        }
    }

    fn back(&mut self, at: usize) {
        let Some(participant) = self.participants.get(at).map(|participant| participant.id) else { return };
        // First, so that the participant knows what is committed before it is asked for anything.
        let endings: Vec<(Timestamp, Vec<Message>)> =
            self.endings.iter().map(|(timestamp, ending)| (*timestamp, ending.again())).collect();
        for (timestamp, mut messages) in endings {
            messages.retain(|message| message.to == participant);
            self.tell_ending(timestamp, messages);
        }
        if let Some(number) = self.run.as_ref().map(|run| run.number) {
            self.notify(number, CoordinatorEvent::Back { participant });
        }
    }

    /// Obtains leases at the participants of these keys, where the session has none.
    pub(super) fn make_ready<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k Key> + Clone,
        deadline: Instant,
    ) -> Result<(), TransactionError> {
        let is_ready = |session: &Self| {
            let at = |key: &Key| session.position(session.participant_of(key));
            keys.clone().all(|key| at(key).is_some_and(|at| session.is_ready(at)))
        };
        if is_ready(self) && !self.missed_an_end {
            return Ok(());
        }
        let participants = self.participants_of(keys.clone());
        self.make_participants_ready(&participants, deadline)
    }

    /// Whether the session can send its operations to a participant.
    fn is_ready(&self, at: usize) -> bool {
        let participant = &self.participants[at];
        participant.lease.is_some() || (participant.is_known && !self.reads)
    }

    /// Obtains leases at these participants, where the session has none.
    pub(super) fn make_participants_ready(
        &mut self,
        participants: &[ParticipantId],
        deadline: Instant,
    ) -> Result<(), TransactionError> {
        self.take_events(Wait::Now);
        // A refusal of an earlier transaction may not hold any more.
        self.participants.iter_mut().for_each(|participant| participant.refusal = None);
        loop {
            let (mut missing, mut without_keys) = (Vec::new(), Vec::new());
            for participant in participants {
                let Some(at) = self.position(*participant) else { continue };
                if let Some(reason) = self.lines.unavailable(at) {
                    if self.awaits_first && self.lines.is_awaited(at) {
                        missing.push(*participant);
                        continue;
                    }
                    return Err(self.participant_unavailable(*participant, reason.to_owned()));
                }
                match &self.participants[at].refusal {
                    Some(TransactionError::KeepsNoKeys { .. }) => {
                        without_keys.push(*participant);
                        continue;
                    }
                    Some(refusal) => return Err(refusal.clone()),
                    None => {}
                }
                if !self.is_ready(at) {
                    missing.push(*participant);
                    self.open_participant(at);
                }
            }
            if missing.is_empty() {
                return without_keys.first().map_or(Ok(()), |participant| {
                    Err(keeps_no_keys(*participant, &without_keys, participants))
                });
            }
            if Instant::now() >= deadline {
                let busy = |participant: &ParticipantId| {
                    let reason = self.participants[self.position(*participant)?].busy.clone()?;
                    Some(TransactionError::NoParticipant { participant: *participant, reason })
                };
                let timed_out =
                    TransactionError::TimedOut { waited: self.timeout, participants: missing.clone() };
                return Err(missing.iter().find_map(busy).unwrap_or(timed_out));
            }
            // No event reports that a first dial has lasted too long.
            let is_awaited =
                self.awaits_first && (0..self.participants.len()).any(|at| self.lines.is_awaited(at));
            let soon = Instant::now() + AWAITED_LOOK_PERIOD;
            self.wait(if is_awaited { deadline.min(soon) } else { deadline });
        }
    }

    /// The error of an unavailable participant.
    fn participant_unavailable(&self, participant: ParticipantId, reason: String) -> TransactionError {
        if self.position(participant).is_some_and(|at| self.lines.is_full(at)) {
            return TransactionError::NodeFull { participant, reason };
        }
        TransactionError::NodeDown { participant, reason }
    }

    /// The error of a transaction that was interrupted.
    pub(super) fn interrupted(&self, why: Interruption, run: RunningTransaction) -> TransactionError {
        if let Some(error) = run.failure {
            return error;
        }
        match (why, run.unavailable) {
            (Interruption::Lost { participant }, unavailable) => {
                let reason = unavailable.filter(|(of, _)| *of == participant).map(|(_, reason)| reason);
                let reason = reason.unwrap_or_else(|| "its connection was lost meanwhile".to_owned());
                self.participant_unavailable(participant, reason)
            }
            (Interruption::GivenUp, _) => {
                let participants = self
                    .participants
                    .iter()
                    .filter(|participant| !participant.sent.is_empty())
                    .map(|participant| participant.id);
                TransactionError::TimedOut { waited: self.timeout, participants: participants.collect() }
            }
            (why, _) => TransactionError::Interrupted { why },
        }
    }

    /// The error of a transaction that was aborted.
    pub(super) fn aborted(
        &self,
        timestamp: Timestamp,
        why: Abortion,
        run: RunningTransaction,
    ) -> TransactionError {
        if let Some(error) = run.failure {
            return error;
        }
        match (why, run) {
            (
                Abortion::Refused { participant, .. },
                RunningTransaction { unavailable: Some((of, reason)), .. },
            ) if participant == of => self.participant_unavailable(participant, reason),
            (Abortion::NotLocked(why @ (Interruption::Lost { .. } | Interruption::GivenUp)), run) => {
                self.interrupted(why, run)
            }
            (why, _) => TransactionError::Aborted { timestamp, why },
        }
    }
}

/// The error of a participant that keeps no keys. [`TransactionError::KeepsNoKeys`] only if none of
/// the asked participants keeps any.
fn keeps_no_keys(
    participant: ParticipantId,
    without_keys: &[ParticipantId],
    asked: &[ParticipantId],
) -> TransactionError {
    match asked.iter().find(|participant| !without_keys.contains(participant)) {
        None => TransactionError::KeepsNoKeys { participant },
        Some(other) => {
            let reason = format!(
                "it keeps no keys, and {other} does: give its node memory for them in its configuration"
            );
            TransactionError::NoParticipant { participant, reason }
        }
    }
}
