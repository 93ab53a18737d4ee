//! How is one transaction driven to its end?
//!
//! Invariants
//! - Every transaction ends: with its coordinator's outcome, which comes at the deadline at the
//!   latest.
//! - A home that was away before it was sent its part has no part in the transaction and never
//!   will: for the coordinator it refuses.

use std::time::Instant;

use rackscan_device::Wait;
use rackscan_ramp::{
    algorithm::{Abortion, Algorithm, Coordinator, Event as Happening, Interruption, Message, Outcome, Step},
    item::Key,
    message::{HomeId, Refusal, Reply, Request},
    timestamp::Timestamp,
};

use super::{Session, TransactionError, follow::News, home::Purpose};
use crate::{LineEvent, limits::AWAITED_LOOK_PERIOD};

/// A transaction on its way, and what it met.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: u64,
    coordinator: Coordinator,
    outcome: Option<Outcome>,
    /// Whether it is committed, and homes are being told.
    commits: bool,
    /// Keys that were found in slots.
    pub(super) one_sided: usize,
    /// The home that was away when it was to be asked.
    away: Option<(HomeId, String)>,
    /// What makes it impossible.
    failure: Option<TransactionError>,
}

impl Session {
    /// Drives a transaction to its end.
    pub(super) fn drive(
        &mut self,
        coordinator: Coordinator,
        messages: Vec<Message>,
        deadline: Instant,
    ) -> (Outcome, Run) {
        self.runs += 1;
        let run = Run {
            number: self.runs,
            coordinator,
            outcome: None,
            commits: false,
            one_sided: 0,
            away: None,
            failure: None,
        };
        self.happened.clear();
        self.run = Some(run);
        self.post(messages);
        loop {
            while let Some(event) = self.happened.pop_front() {
                self.step(event);
            }
            if let Some(run) = self.run.take_if(|run| run.outcome.is_some()) {
                return self.ended(run);
            }
            if Instant::now() >= deadline || self.run.as_ref().is_some_and(|run| run.failure.is_some()) {
                self.happened.push_back(Happening::GiveUp);
            } else {
                self.wait(deadline);
            }
        }
    }

    fn ended(&mut self, mut run: Run) -> (Outcome, Run) {
        self.happened.clear();
        let given_up = || Outcome::Interrupted { why: Interruption::GivenUp };
        let outcome = run.outcome.take().unwrap_or_else(given_up);
        self.lines.release();
        (outcome, run)
    }

    fn step(&mut self, event: Happening) {
        let Some(run) = self.run.as_mut().filter(|run| run.outcome.is_none()) else { return };
        let Step { messages, outcome } = run.coordinator.step(event);
        run.outcome = outcome;
        run.commits |= messages.iter().any(|message| matches!(message.request, Request::Commit { .. }));
        self.post(messages);
    }

    /// Whether this is the number of the transaction that is on its way.
    pub(super) fn is_running(&self, number: u64) -> bool {
        self.run.as_ref().is_some_and(|run| run.number == number && run.outcome.is_none())
    }

    /// Tells the present transaction what has happened.
    pub(super) fn happen(&mut self, number: u64, event: Happening) {
        if self.is_running(number) {
            self.happened.push_back(event);
        }
    }

    /// Keys of the present transaction were found in slots.
    pub(super) fn count_one_sided(&mut self, keys: usize) {
        if let Some(run) = &mut self.run {
            run.one_sided += keys;
        }
    }

    /// The present transaction is impossible.
    pub(super) fn fail(&mut self, number: u64, error: TransactionError) {
        if let Some(run) = self.run.as_mut().filter(|run| run.number == number) {
            run.failure.get_or_insert(error);
        }
    }

    /// So is what a request was for.
    pub(super) fn is_impossible(&mut self, purpose: Purpose, error: TransactionError) {
        match purpose {
            Purpose::Run(number) => self.fail(number, error),
            Purpose::Follow(attempt) => self.follows(News::Failed { attempt, error }),
            _ => {}
        }
    }

    /// Something has come for who follows feeds.
    pub(super) fn follows(&mut self, news: News) {
        if let Some(all) = &mut self.news {
            all.push_back(news);
        }
    }

    /// A request was not sent, because the home is away.
    pub(super) fn unsent(&mut self, at: usize, purpose: Purpose, request: Option<Request>) {
        self.missed_an_end = true;
        let (home, Purpose::Run(number)) = (self.homes[at].id, purpose) else { return };
        let reason = self.lines.away(at).unwrap_or("the connection ended").to_owned();
        if let Some(run) = self.run.as_mut().filter(|run| run.number == number) {
            run.away.get_or_insert((home, reason));
        }
        let refused = |timestamp: Timestamp| {
            let reply = Reply::Refused { why: Refusal::Promised { timestamp } };
            Happening::Reply { from: home, reply }
        };
        let event = match request {
            Some(Request::Prepare { part, .. } | Request::Put { part, .. }) => refused(part.timestamp),
            _ => Happening::Lost { home },
        };
        self.happen(number, event);
        self.stop_waiting_for(number);
    }

    /// Waits until something has happened, or the deadline, and deals with it.
    pub(super) fn wait(&mut self, deadline: Instant) {
        let rests = self.homes.iter().filter_map(|home| home.rests_until).min();
        self.take_events(Wait::Until(rests.map_or(deadline, |rests| rests.min(deadline))));
        (0..self.homes.len()).for_each(|at| self.pump(at));
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
            LineEvent::Read { node: at, is_done, .. } if self.news.is_some() => {
                self.follows(News::Read { at, is_done });
            }
            LineEvent::Read { node, tag, is_done } => self.slot_read(node, tag, is_done),
            LineEvent::Lost { node, .. } => self.lost(node),
            LineEvent::Back { node } => self.back(node),
        }
    }

    fn lost(&mut self, at: usize) {
        let Some(home) = self.homes.get_mut(at) else { return };
        let (id, unsent) = (home.id, home.lost());
        for waiting in unsent {
            self.unsent(at, waiting.purpose, waiting.request);
        }
        let Some(run) = &mut self.run else { return };
        let reason = self.lines.away(at).unwrap_or("the connection ended").to_owned();
        run.away.get_or_insert((id, reason));
        let number = run.number;
        self.happen(number, Happening::Lost { home: id });
        self.stop_waiting_for(number);
    }

    /// A home is away. Nobody waits for it who knows how the transaction ends, or would never be
    /// told.
    fn stop_waiting_for(&mut self, number: u64) {
        if self.algorithm == Algorithm::None || self.run.as_ref().is_some_and(|run| run.commits) {
            self.happen(number, Happening::GiveUp);
        }
    }

    fn back(&mut self, at: usize) {
        let Some(home) = self.homes.get(at).map(|home| home.id) else { return };
        // First, so that it knows what is committed before it is asked for anything.
        let endings: Vec<(Timestamp, Vec<Message>)> =
            self.endings.iter().map(|(timestamp, ending)| (*timestamp, ending.again())).collect();
        for (timestamp, mut messages) in endings {
            messages.retain(|message| message.to == home);
            self.tell_ending(timestamp, messages);
        }
        if let Some(number) = self.run.as_ref().map(|run| run.number) {
            self.happen(number, Happening::Back { home });
        }
    }

    /// Takes leases at the homes of these keys, where there are none.
    pub(super) fn make_ready<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k Key> + Clone,
        deadline: Instant,
    ) -> Result<(), TransactionError> {
        let is_ready = |session: &Self| {
            let at = |key: &Key| session.position(session.home_of(key));
            keys.clone().all(|key| at(key).is_some_and(|at| session.is_ready(at)))
        };
        if is_ready(self) && !self.missed_an_end {
            return Ok(());
        }
        let homes = self.homes_of(keys.clone());
        self.make_homes_ready(&homes, deadline)
    }

    /// Whether a home can be asked for what this session does.
    fn is_ready(&self, at: usize) -> bool {
        let home = &self.homes[at];
        home.lease.is_some() || (home.is_known && !self.reads)
    }

    /// Takes leases at these homes, where there are none.
    pub(super) fn make_homes_ready(
        &mut self,
        homes: &[HomeId],
        deadline: Instant,
    ) -> Result<(), TransactionError> {
        self.take_events(Wait::Now);
        // What an earlier transaction was told may be true no more.
        self.homes.iter_mut().for_each(|home| home.refusal = None);
        loop {
            let (mut missing, mut without_keys) = (Vec::new(), Vec::new());
            for home in homes {
                let Some(at) = self.position(*home) else { continue };
                if let Some(reason) = self.lines.away(at) {
                    if self.awaits_first && self.lines.is_awaited(at) {
                        missing.push(*home);
                        continue;
                    }
                    return Err(self.unavailable(*home, reason.to_owned()));
                }
                match &self.homes[at].refusal {
                    Some(TransactionError::KeepsNoKeys { .. }) => {
                        without_keys.push(*home);
                        continue;
                    }
                    Some(refusal) => return Err(refusal.clone()),
                    None => {}
                }
                if !self.is_ready(at) {
                    missing.push(*home);
                    self.open_home(at);
                }
            }
            if missing.is_empty() {
                return without_keys
                    .first()
                    .map_or(Ok(()), |home| Err(keeps_no_keys(*home, &without_keys, homes)));
            }
            if Instant::now() >= deadline {
                let busy = |home: &HomeId| {
                    let reason = self.homes[self.position(*home)?].busy.clone()?;
                    Some(TransactionError::NoHome { home: *home, reason })
                };
                let timed_out = TransactionError::TimedOut { waited: self.timeout, homes: missing.clone() };
                return Err(missing.iter().find_map(busy).unwrap_or(timed_out));
            }
            // Nobody tells when a first attempt to connect has gone on for too long.
            let is_awaited = self.awaits_first && (0..self.homes.len()).any(|at| self.lines.is_awaited(at));
            let soon = Instant::now() + AWAITED_LOOK_PERIOD;
            self.wait(if is_awaited { deadline.min(soon) } else { deadline });
        }
    }

    /// The error of a home that cannot be asked, for this reason.
    fn unavailable(&self, home: HomeId, reason: String) -> TransactionError {
        if self.position(home).is_some_and(|at| self.lines.is_full(at)) {
            return TransactionError::NodeFull { home, reason };
        }
        TransactionError::NodeDown { home, reason }
    }

    /// The error of a transaction that nothing came of.
    pub(super) fn interrupted(&self, why: Interruption, run: Run) -> TransactionError {
        if let Some(error) = run.failure {
            return error;
        }
        match (why, run.away) {
            (Interruption::Lost { home }, away) => {
                let reason = away.filter(|(of, _)| *of == home).map(|(_, reason)| reason);
                let reason = reason.unwrap_or_else(|| "it was lost meanwhile".to_owned());
                self.unavailable(home, reason)
            }
            (Interruption::GivenUp, _) => {
                let homes = self.homes.iter().filter(|home| !home.asked.is_empty()).map(|home| home.id);
                TransactionError::TimedOut { waited: self.timeout, homes: homes.collect() }
            }
            (why, _) => TransactionError::Interrupted { why },
        }
    }

    /// The error of a transaction that was aborted.
    pub(super) fn aborted(&self, timestamp: Timestamp, why: Abortion, run: Run) -> TransactionError {
        if let Some(error) = run.failure {
            return error;
        }
        match (why, run) {
            (Abortion::Refused { home, .. }, Run { away: Some((of, reason)), .. }) if home == of => {
                self.unavailable(home, reason)
            }
            (Abortion::NotLocked(why @ (Interruption::Lost { .. } | Interruption::GivenUp)), run) => {
                self.interrupted(why, run)
            }
            (why, _) => TransactionError::Aborted { timestamp, why },
        }
    }
}

/// The error of a home that keeps no keys. It says that nobody keeps any only if no other home that
/// was asked does.
fn keeps_no_keys(home: HomeId, without_keys: &[HomeId], asked: &[HomeId]) -> TransactionError {
    match asked.iter().find(|home| !without_keys.contains(home)) {
        None => TransactionError::KeepsNoKeys { home },
        Some(other) => {
            let reason = format!(
                "it keeps no keys, and {other} does: give its node memory for them in its configuration"
            );
            TransactionError::NoHome { home, reason }
        }
    }
}
