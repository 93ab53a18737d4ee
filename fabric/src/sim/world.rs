//! Keeps the state of a simulated network, and executes one step of it.
//!
//! Invariants
//! - Everything that happens is on the agenda. A step executes its first event, so time moves only
//!   by steps.
//! - Every choice is drawn from `random`, in an order that depends on nothing but the calls into
//!   the network.
//! - If an entry of the agenda refers to something that does not exist any more, it is skipped, and
//!   skipping is no step.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    agenda::{Agenda, Due, EndNumber},
    config::SimConfig,
    fault::Plans,
    history::{History, TraceEvent},
    link::{End, Executed, Flight, Link, Owner, Task, UnpolledEvents},
    place::Places,
    seed::{Random, Seed},
    transfer::{Direction, Transfer},
};
use crate::{
    completion::{Done, Event},
    doorbell::Doorbell,
    error::{Ending, OperationError, PostError},
    operation::{DeferredOperation, Operation},
    region::Region,
};

/// A remote atomic between its load and its store.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) owner: usize,
    pub(super) places: (usize, usize),
    pub(super) remote: Region,
    pub(super) offset: usize,
    pub(super) value: u64,
    pub(super) due_ns: u64,
}

/// The state of a simulated network.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: SimConfig,
    pub(super) random: Random,
    pub(super) agenda: Agenda,
    pub(super) history: History,
    pub(super) places: Places,
    pub(super) plans: Plans,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) transfers: BTreeMap<u64, Transfer>,
    pub(super) updates: BTreeMap<u64, Update>,
    pub(super) posts: u64,
    last_serial: u64,
}

/// A short name of an operation, for the trace.
pub(super) fn kind(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Write { .. } | Operation::WriteBytes { .. } => "write",
        Operation::WriteWithImmediate { .. } => "write with immediate",
        Operation::Read { .. } => "read",
        Operation::Send { .. } | Operation::SendRegion { .. } => "message",
        Operation::FetchAdd { .. } => "fetch-add",
        Operation::CompareSwap { .. } => "compare-swap",
    }
}

impl World {
    pub(super) fn new(seed: Seed, config: SimConfig) -> Self {
        Self {
            config,
            random: Random::new(seed),
            agenda: Agenda::default(),
            history: History::default(),
            places: Places::default(),
            plans: Plans::default(),
            links: BTreeMap::new(),
            transfers: BTreeMap::new(),
            updates: BTreeMap::new(),
            posts: 0,
            last_serial: 0,
        }
    }

    /// A number that is unique in this network.
    pub(super) fn serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    pub(super) fn note(&mut self, places: (usize, usize), event: TraceEvent) {
        self.history.note(self.agenda.now_ns(), places, event);
    }

    /// Enters an event of a link and wakes its owners, one of which will take the step.
    pub(super) fn enter(&mut self, link: u64, due_ns: u64, due: Due) {
        self.agenda.enter(due_ns, due);
        if let Some(link) = self.links.get(&link) {
            link.ring_both();
        }
    }

    /// Executes the first event on the agenda. Returns false if there is none.
    pub(super) fn step(&mut self) -> bool {
        self.discard_void();
        if self.agenda.is_empty() {
            return false;
        }
        self.fail_before_step();
        if let Some(due) = self.agenda.advance()
            && !self.is_void(&due)
        {
            self.execute(due);
        }
        self.history.count_step();
        true
    }

    /// When the next step is due, if there is one.
    pub(super) fn next_ns(&mut self) -> Option<u64> {
        self.discard_void();
        self.agenda.first().map(|(due_ns, _)| due_ns)
    }

    /// Whether the agenda is empty.
    pub(super) fn is_idle(&mut self) -> bool {
        self.discard_void();
        self.agenda.is_empty()
    }

    pub(super) fn discard_void(&mut self) {
        while self.agenda.first().is_some_and(|(_, due)| self.is_void(due)) {
            self.agenda.discard_first();
        }
    }

    fn is_void(&self, due: &Due) -> bool {
        match due {
            Due::Arrive { link, end } => !self.links.get(link).is_some_and(|link| link.carries(*end)),
            Due::Move { transfer, .. } => !self.transfers.contains_key(transfer),
            Due::Store { update } => !self.updates.contains_key(update),
            Due::Complete { link, end, serial } => {
                // A completion on a lost connection is lost. Its poster cannot know whether the
                // operation happened.
                let link = self.links.get(link).filter(|link| link.lost.is_none());
                let first = link.and_then(|link| link.ends[*end].lane.executed.front());
                first.is_none_or(|first| first.serial != *serial)
            }
            Due::Notice { link, end } => {
                self.links.get(link).is_none_or(|link| link.ends[*end].ending.is_some())
            }
            Due::Fail(_) => false,
        }
    }

    fn execute(&mut self, due: Due) {
        match due {
            Due::Arrive { link, end } => self.arrive(link, end),
            Due::Move { transfer, piece } => self.move_piece(transfer, piece),
            Due::Store { update } => self.store(update),
            Due::Complete { link, end, .. } => self.complete(link, end),
            Due::Notice { link, end } => {
                let reason = self.links.get(&link).and_then(|link| link.lost.clone()).unwrap_or_default();
                self.end(link, end, &Ending::Lost { reason });
            }
            Due::Fail(fault) => self.fail(&fault),
        }
    }

    fn move_piece(&mut self, number: u64, piece: usize) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let (offset, moved) = transfer.move_piece(piece);
        let (link, end, left) = (transfer.link, transfer.end, transfer.left);
        let (offset, bytes) = (offset as u64, moved.len() as u64);
        let (owner, event) = match transfer.direction {
            Direction::Write => (transfer.owner, TraceEvent::Written { offset, bytes }),
            Direction::Read => (transfer.owner, TraceEvent::Read { offset, bytes }),
        };
        let places = self.links.get(&link).map_or((owner, owner), |link| link.places(end));
        self.note(places, event);
        self.history.note_bytes(&moved);
        if left == 0 {
            self.transfers.remove(&number);
            if let Some(link) = self.links.get_mut(&link) {
                link.ends[end].lane.writing.retain(|writing| *writing != number);
            }
        }
    }

    fn store(&mut self, number: u64) {
        let Some(update) = self.updates.remove(&number) else { return };
        store_word(&update.remote, update.offset, update.value);
        self.note(update.places, TraceEvent::Stored { offset: update.offset as u64, value: update.value });
    }

    fn complete(&mut self, number: u64, end: EndNumber) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let places = link.places(end);
        let Some(Executed { id, serial, outcome }) = link.ends[end].lane.executed.pop_front() else { return };
        let ok = outcome.is_ok();
        link.ends[end].report(Event::Completed { id, outcome });
        if let Some(transfer) = self.transfers.get_mut(&serial) {
            transfer.take_source();
            transfer.completed = true;
        }
        self.note(places, TraceEvent::Completed { id, ok });
    }

    /// Accepts an operation of an end.
    pub(super) fn post(
        &mut self,
        number: u64,
        end: EndNumber,
        id: u64,
        operation: Operation<'_>,
    ) -> Result<(), PostError> {
        let Some(link) = self.links.get(&number) else { return Err(PostError::Closed(Ending::Orderly)) };
        if let Some(ending) = &link.ends[end].ending {
            return Err(PostError::Closed(ending.clone()));
        }
        let posted = TraceEvent::Posted { kind: kind(&operation), bytes: operation.transfer_bytes() as u64 };
        self.note(link.places(end), posted);
        self.submit(number, end, id, Task::Operate(DeferredOperation::new(operation)));
        self.posts += 1;
        self.fail_after_post();
        Ok(())
    }

    /// Sends a task to the peer.
    fn submit(&mut self, number: u64, end: EndNumber, id: u64, task: Task) {
        let travelled_ns = self.agenda.now_ns() + self.random.nanoseconds(&self.config.delay);
        let Some(link) = self.links.get_mut(&number) else { return };
        link.ends[end].lane.waiting.push_back(Flight { id, arrival_ns: travelled_ns, task });
        self.expect_arrival(number, end);
    }

    /// Puts the arrival of an end's first waiting operation on the agenda, unless it is there
    /// already.
    pub(super) fn expect_arrival(&mut self, number: u64, end: EndNumber) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let carries = link.carries(end);
        let lane = &mut link.ends[end].lane;
        let Some(ready_ns) = lane.ready_ns() else { return };
        if carries && !lane.expected && !lane.stalled {
            lane.expected = true;
            self.enter(number, ready_ns, Due::Arrive { link: number, end });
        }
    }

    /// Notes that an operation was executed. Its completion starts its way back at `worked_ns`.
    pub(super) fn note_executed(
        &mut self,
        (number, end): (u64, EndNumber),
        (id, serial): (u64, u64),
        worked_ns: u64,
        outcome: Result<Done, OperationError>,
    ) {
        let travelled_ns = worked_ns.max(self.agenda.now_ns()) + self.random.nanoseconds(&self.config.delay);
        let Some(link) = self.links.get_mut(&number) else { return };
        let lane = &mut link.ends[end].lane;
        let due_ns = lane.last_completion_ns.max(travelled_ns);
        lane.last_completion_ns = due_ns;
        lane.executed.push_back(Executed { id, serial, outcome });
        self.enter(number, due_ns, Due::Complete { link: number, end, serial });
    }

    /// Moves the events of an end to its owner.
    pub(super) fn take(&mut self, number: u64, end: EndNumber, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let made_room = link.ends[end].arrived.take(events);
        let lane = &mut link.ends[1 - end].lane;
        if made_room && std::mem::take(&mut lane.stalled) {
            self.expect_arrival(number, 1 - end);
        }
    }

    /// Closes an end. Everything that it posted is still delivered.
    pub(super) fn close(&mut self, number: u64, end: EndNumber) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let places = link.places(end);
        let carries = link.carries(end);
        let ours = &mut link.ends[end];
        ours.owner = Owner::Gone;
        ours.grants.clear();
        ours.arrived = UnpolledEvents::default();
        ours.armed = false;
        let both_gone = link.ends[1 - end].owner == Owner::Gone;
        self.note(places, TraceEvent::Closed);
        if both_gone {
            self.abandon_transfers(|transfer| transfer.link == number);
            self.links.remove(&number);
        } else if carries {
            self.submit(number, end, 0, Task::Goodbye);
        }
    }

    /// Ends the connection for one end.
    pub(super) fn end(&mut self, number: u64, end: EndNumber, ending: &Ending) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let places = link.places(end);
        link.ends[end].finish(ending);
        let ending = match ending {
            Ending::Orderly => "orderly",
            Ending::Lost { .. } => "lost",
            Ending::Failed { .. } => "failed",
            Ending::Violation { .. } => "violation",
        };
        self.abandon_transfers(|transfer| transfer.link == number && transfer.end == end);
        self.note(places, TraceEvent::Ended { ending });
    }

    /// Drops the pieces of some transfers that have not moved yet, except of those whose success
    /// was reported.
    pub(super) fn abandon_transfers(&mut self, which: impl Fn(&Transfer) -> bool) {
        self.transfers.retain(|_, transfer| transfer.completed || !which(transfer));
    }

    /// Makes a connection from one place to another. The listener's end waits to be accepted.
    pub(super) fn connect(&mut self, from: usize, to: usize, bells: [Doorbell; 2]) -> u64 {
        let number = self.serial();
        let [ours, theirs] = bells;
        let ends = [End::new(from, Owner::Held, ours), End::new(to, Owner::Awaited, theirs)];
        self.links.insert(number, Link { ends, lost: None });
        self.note((from, to), TraceEvent::Connected);
        number
    }

    /// The bell of an end.
    pub(super) fn bell(&self, number: u64, end: EndNumber) -> Option<Arc<Doorbell>> {
        self.links.get(&number).map(|link| Arc::clone(&link.ends[end].bell))
    }
}

/// Stores a word whose bounds and alignment were checked with the grant.
pub(super) fn store_word(region: &Region, offset: usize, value: u64) {
    let stored = region.store_u64(offset, value);
    debug_assert!(stored.is_ok(), "the bounds were checked with the grant: {stored:?}");
}
