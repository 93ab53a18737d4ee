//! Executes operations that have reached the peer in a simulated network.
//!
//! Invariants
//! - Messages, immediates, reads, atomics and goodbyes are executed after every byte written before
//!   them is visible (`Lane::ready_ns`).
//! - A remote atomic between its load and its store keeps other remote atomics away from its word,
//!   and nothing else.
//! - A message stays with its sender until the receiver has room, and so does everything that was
//!   posted after it.

use super::{
    agenda::{Due, EndNumber},
    config::{Atomicity, Order},
    history::TraceEvent,
    link::{Flight, Task},
    region::same_memory,
    transfer::{Direction, Local, Piece, Transfer, pieces},
    world::{Update, World, kind, store_word},
};
use crate::{
    access::Access,
    completion::{Done, Event},
    error::{Ending, OperationError},
    operation::{Operation, RemoteSpan},
    region::Region,
};

/// The operation that is being executed: its connection, its end, and the id that its poster gave
/// it.
#[derive(Debug, Clone, Copy)]
struct Posted {
    link: u64,
    end: EndNumber,
    id: u64,
}

/// The result of an attempt to execute an operation.
enum Attempt {
    Done,
    /// Another remote atomic is using the word; try again after it.
    Later(Flight),
    /// The receiver has no room.
    Stalled(Flight),
}

/// The value that a remote atomic stores, given the value that it finds; `None` if it stores
/// nothing.
fn atomic_result(operation: &Operation<'_>, found: u64) -> Option<u64> {
    match *operation {
        Operation::FetchAdd { add, .. } => Some(found.wrapping_add(add)),
        Operation::CompareSwap { expected, replacement, .. } => (found == expected).then_some(replacement),
        _ => None,
    }
}

impl World {
    /// Executes the first waiting operation of an end, which has reached the peer.
    pub(super) fn arrive(&mut self, number: u64, end: EndNumber) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let lane = &mut link.ends[end].lane;
        lane.expected = false;
        let Some(flight) = lane.waiting.pop_front() else { return };
        let posted = Posted { link: number, end, id: flight.id };
        let attempt = match flight.task {
            Task::Goodbye => {
                self.end(number, 1 - end, &Ending::Orderly);
                Attempt::Done
            }
            Task::Announce { immediate, bytes } => self.announce(posted, flight, immediate, bytes),
            Task::Operate(_) => self.operate(posted, flight),
        };
        if let Some(link) = self.links.get_mut(&number) {
            let places = link.places(end);
            let lane = &mut link.ends[end].lane;
            match attempt {
                Attempt::Done => {}
                Attempt::Later(flight) => lane.waiting.push_front(flight),
                Attempt::Stalled(flight) => {
                    lane.waiting.push_front(flight);
                    lane.stalled = true;
                    self.note(places, TraceEvent::Stalled);
                }
            }
        }
        self.expect_arrival(number, end);
    }

    fn operate(&mut self, posted: Posted, flight: Flight) -> Attempt {
        let Task::Operate(deferred) = &flight.task else { return Attempt::Done };
        let operation = deferred.as_operation();
        let outcome = match &operation {
            Operation::Send { .. } | Operation::SendRegion { .. } => {
                return if self.deliver(posted, &operation) {
                    Attempt::Done
                } else {
                    Attempt::Stalled(flight)
                };
            }
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                match self.atomic(posted, &operation) {
                    Ok(true) => return Attempt::Done,
                    Ok(false) => return Attempt::Later(flight),
                    Err(error) => Err(error),
                }
            }
            _ => self.transfer(posted, &operation),
        };
        if let Err(error) = outcome {
            self.note(self.places(posted), TraceEvent::Refused { kind: kind(&operation) });
            let serial = self.serial();
            self.note_executed((posted.link, posted.end), (posted.id, serial), 0, Err(error));
        }
        Attempt::Done
    }

    fn places(&self, posted: Posted) -> (usize, usize) {
        self.links.get(&posted.link).map_or((0, 0), |link| link.places(posted.end))
    }

    /// The peer's memory that an operation touches.
    fn find(
        &self,
        posted: Posted,
        operation: &Operation<'_>,
        needed: Access,
    ) -> Result<(Region, usize), OperationError> {
        let span = operation.remote_span().map_err(OperationError::OutOfBounds)?;
        let span = span.unwrap_or(RemoteSpan { key: 0, address: 0, length: 0 });
        match self.links.get(&posted.link) {
            Some(link) => link.ends[1 - posted.end].grants.find(span, needed),
            None => Err(OperationError::UnknownKey { key: span.key }),
        }
    }

    /// Delivers a message. Returns false if the receiver has no room.
    fn deliver(&mut self, posted: Posted, operation: &Operation<'_>) -> bool {
        let bytes = operation.transfer_bytes();
        let Some(link) = self.links.get_mut(&posted.link) else { return true };
        let places = link.places(posted.end);
        let receiver = &mut link.ends[1 - posted.end];
        if !receiver.arrived.has_room(bytes) {
            return false;
        }
        let message = match operation {
            Operation::Send { bytes } => bytes.to_vec(),
            Operation::SendRegion { source, .. } => {
                let bytes = source.region().to_vec(source.offset(), source.len());
                bytes.expect("a slice lies inside its region")
            }
            _ => Vec::new(),
        };
        self.history.note_bytes(&message);
        receiver.report(Event::Message { bytes: message });
        self.note(places, TraceEvent::Message { bytes: bytes as u64 });
        let serial = self.serial();
        let moved = Ok(Done::Moved { bytes: bytes as u64 });
        self.note_executed((posted.link, posted.end), (posted.id, serial), 0, moved);
        true
    }

    /// Reports the immediate of a write whose bytes are visible.
    fn announce(&mut self, posted: Posted, flight: Flight, immediate: u32, bytes: u64) -> Attempt {
        let Some(link) = self.links.get_mut(&posted.link) else { return Attempt::Done };
        let places = link.places(posted.end);
        let receiver = &mut link.ends[1 - posted.end];
        if !receiver.arrived.has_room(0) {
            return Attempt::Stalled(flight);
        }
        receiver.report(Event::Immediate { immediate, bytes });
        self.note(places, TraceEvent::Immediate { immediate });
        let serial = self.serial();
        self.note_executed((posted.link, posted.end), (posted.id, serial), 0, Ok(Done::Moved { bytes }));
        Attempt::Done
    }

    /// Starts to move the bytes of a write or read.
    fn transfer(&mut self, posted: Posted, operation: &Operation<'_>) -> Result<(), OperationError> {
        let (direction, needed, local) = match operation {
            Operation::Read { target, .. } => (Direction::Read, Access::Read, Local::Memory(target.clone())),
            Operation::WriteBytes { bytes, .. } => {
                (Direction::Write, Access::Write, Local::Taken(bytes.to_vec()))
            }
            Operation::Write { source, .. } | Operation::WriteWithImmediate { source, .. } => {
                (Direction::Write, Access::Write, Local::Memory(source.clone()))
            }
            _ => return Ok(()),
        };
        let bytes = operation.transfer_bytes();
        let (remote, remote_offset) = self.find(posted, operation, needed)?;
        let serial = self.serial();
        let now_ns = self.agenda.now_ns();
        let mut last_ns = now_ns;
        let span = remote_offset..remote_offset + bytes;
        let mut pieces = pieces(&mut self.random, &self.config, now_ns, span);
        if direction == Direction::Write {
            self.put_behind_earlier_writes(posted, &remote, remote_offset, &mut pieces);
        }
        let Some(link) = self.links.get_mut(&posted.link) else { return Ok(()) };
        let owner = link.ends[1 - posted.end].place;
        let left = pieces.len();
        for (number, piece) in pieces.iter().enumerate() {
            last_ns = last_ns.max(piece.due_ns);
            self.agenda.enter(piece.due_ns, Due::Move { transfer: serial, piece: number });
        }
        let lane = &mut link.ends[posted.end].lane;
        let done_ns = match direction {
            // Its completion does not wait until the owner sees the bytes.
            Direction::Write => {
                lane.written_ns = lane.written_ns.max(last_ns);
                lane.writing.push(serial);
                now_ns
            }
            Direction::Read => {
                lane.worked_ns = lane.worked_ns.max(last_ns);
                last_ns
            }
        };
        if left > 0 {
            let Posted { link, end, .. } = posted;
            let completed = false;
            let transfer = Transfer {
                link,
                end,
                owner,
                direction,
                local,
                remote,
                remote_offset,
                pieces,
                left,
                completed,
            };
            self.transfers.insert(serial, transfer);
        } else {
            lane.writing.retain(|writing| *writing != serial);
        }
        let moved = Done::Moved { bytes: bytes as u64 };
        if let Operation::WriteWithImmediate { immediate, .. } = operation {
            let task = Task::Announce { immediate: *immediate, bytes: bytes as u64 };
            lane.waiting.push_front(Flight { id: posted.id, arrival_ns: now_ns, task });
        } else {
            self.note_executed((posted.link, posted.end), (posted.id, serial), done_ns, Ok(moved));
        }
        Ok(())
    }

    /// Delays pieces until the bytes that earlier writes of the connection put in the same place
    /// are visible; with ascending order until all of their bytes are.
    fn put_behind_earlier_writes(
        &self,
        posted: Posted,
        remote: &Region,
        remote_offset: usize,
        pieces: &mut [Piece],
    ) {
        let Some(link) = self.links.get(&posted.link) else { return };
        let lane = &link.ends[posted.end].lane;
        let earlier: Vec<_> = lane.writing.iter().filter_map(|serial| self.transfers.get(serial)).collect();
        for piece in pieces {
            let range = remote_offset + piece.range.start..remote_offset + piece.range.end;
            let seen_ns = match self.config.order {
                Order::Ascending => lane.written_ns,
                Order::Any => earlier.iter().map(|write| write.seen_ns(remote, &range)).max().unwrap_or(0),
            };
            piece.due_ns = piece.due_ns.max(seen_ns);
        }
    }

    /// Executes a remote atomic. Returns false if it has to wait for another one.
    fn atomic(&mut self, posted: Posted, operation: &Operation<'_>) -> Result<bool, OperationError> {
        let (remote, offset) = self.find(posted, operation, Access::ReadWrite)?;
        let taken = |update: &&Update| update.offset == offset && same_memory(&update.remote, &remote);
        let free_ns = self.updates.values().find(taken).map(|update| update.due_ns);
        let Some(link) = self.links.get_mut(&posted.link) else { return Ok(true) };
        let (places, owner) = (link.places(posted.end), link.ends[1 - posted.end].place);
        let lane = &mut link.ends[posted.end].lane;
        if let Some(free_ns) = free_ns {
            lane.worked_ns = lane.worked_ns.max(free_ns);
            return Ok(false);
        }
        let found = remote.mapping().load(offset).map_err(OperationError::OutOfBounds)?;
        let mut due_ns = self.agenda.now_ns();
        let result = atomic_result(operation, found);
        let weak = self.config.atomicity == Atomicity::AgainstAtomics && result.is_some();
        if weak {
            due_ns += self.random.nanoseconds(&self.config.atomic_gap);
            lane.worked_ns = lane.worked_ns.max(due_ns);
        }
        self.note(places, TraceEvent::Loaded { offset: offset as u64, value: found });
        let serial = self.serial();
        if let Some(value) = result {
            if weak {
                self.updates.insert(serial, Update { owner, places, remote, offset, value, due_ns });
                self.agenda.enter(due_ns, Due::Store { update: serial });
            } else {
                store_word(&remote, offset, value);
                self.note(places, TraceEvent::Stored { offset: offset as u64, value });
            }
        }
        let done = Ok(Done::Found { value: found });
        self.note_executed((posted.link, posted.end), (posted.id, serial), due_ns, done);
        Ok(true)
    }
}
