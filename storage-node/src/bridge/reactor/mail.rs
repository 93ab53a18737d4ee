//! Handles the messages that other threads have sent to a reactor, and what the participant of
//! transactions has to write or to answer.
//!
//! Invariants
//! - Answers of the participant are sent in the turn in which it gave them. Before that, the
//!   records that it must write are handed to its log's thread.

use super::Reactor;
use crate::message_queue::Mail;

impl Reactor {
    /// Takes what other threads have sent. Returns whether there was anything.
    pub(super) fn take_mail(&mut self) -> bool {
        if !self.core.message_queue.has_mail() {
            return false;
        }
        for mail in self.core.message_queue.take() {
            match mail {
                Mail::Connected(connection) => self.connected(*connection),
                Mail::HungUp(transfers) => self.abandon(transfers),
                Mail::Published(index, outcome) => {
                    if let Some(task) = self.tasks.get_mut(index) {
                        task.work.published(outcome);
                    }
                    self.advance(index);
                }
                Mail::Scanned(index, result) => {
                    if let Some(task) = self.tasks.get_mut(index) {
                        task.work.scanned(&mut self.core, *result);
                    }
                    self.advance(index);
                }
                Mail::Kept(index, outcome) => {
                    if let Some(task) = self.tasks.get_mut(index) {
                        task.work.kept(outcome);
                    }
                    self.advance(index);
                }
                Mail::Transact(asked) => self.core.participant.asked(asked),
                Mail::Answered(caller, replies) => self.core.participant.answered(caller, replies),
                Mail::ConnectionClosed(connection) => self.core.participant.connection_closed(connection),
                Mail::Log(report) => self.core.participant.reported(report),
                Mail::Peers(report) => self.core.participant.heard(report),
                Mail::ParticipantRecovered => self.core.participant.arrived(),
            }
        }
        true
    }

    /// Lets the participant write its records, and sends its answers. Returns whether anything
    /// happened.
    pub(super) fn see_to_participant(&mut self) -> bool {
        let mut happened = self.core.participant.turn();
        while let Some((index, replies)) = self.core.participant.next_answer() {
            happened = true;
            if let Some(task) = self.tasks.get_mut(index) {
                task.work.answered(replies);
            }
            self.advance(index);
        }
        happened
    }
}
