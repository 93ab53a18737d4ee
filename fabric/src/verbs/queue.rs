//! Implements the queue of a `verbs` connection.
//!
//! `post` creates work requests and rings the adapter's doorbell once; `poll` takes completions.
//! While the adapter's queue, the peer's ring or the scratch memory is full, operations wait here.
//!
//! Invariants
//! - The queue polls the set-up's TCP connection before it sleeps: its end shows a dead peer.
//! - A goodbye takes effect once all operations before it have arrived; it says how many there are.
//! - A failed work request ends the connection: its queue pair is in the error state.
//! - No wake-up is lost: `arm` asks the adapter for one, then polls once more.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use az::SaturatingAs;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use super::{
    flight::{Failure, Progress},
    inlet::{Inlet, Missing},
    lifeline::{FinalMessage, Lifeline},
    receive::RECEIVE_ID,
    region::Grants,
    send::{Advance, Sender},
    sys::{
        Completion, CompletionQueue, MemoryWindow, PairState, QueuePair, Received, STATUS_FLUSHED,
        status_text,
    },
};
use crate::{
    access::Access,
    completion::Event,
    error::{Ending, OperationError, PostError, RegisterError},
    limits::{CLOSE_TIME_MAX, EVENTS_PER_POLL_MAX, VERBS_SPIN_US},
    memory::RawSlice,
    operation::{DeferredOperation, Operation, RemoteSpan},
    region::{Region, RemoteRegion},
    wire::Queue,
};

/// An owner that never sleeps checks its socket once in so many polls that found nothing.
const IDLE_POLLS_PER_LOOK: u32 = 128;

/// An operation or a binding that waits for room.
enum Waiting {
    Operation(u64, DeferredOperation, Progress),
    Binding(Arc<MemoryWindow>),
}

/// One end of a `verbs` connection.
pub(super) struct VerbsQueue {
    // Dropped in this order: windows before the queue pair, the queue pair before the rest.
    grants: Grants,
    waiting: VecDeque<Waiting>,
    sender: Sender,
    inlet: Inlet,
    pair: Arc<QueuePair>,
    completions: Arc<CompletionQueue>,
    lifeline: Lifeline,
    /// Watches the completion channel and the socket.
    watch: OwnedFd,
    found: Vec<Completion>,
    finished: VecDeque<Event>,
    batching: bool,
    /// The first of our requests that failed.
    failure: Option<Failure>,
    /// Whether the queue pair is in its error state.
    is_broken: bool,
    ending: Option<Ending>,
    ending_reported: bool,
    armed: bool,
    idle_polls: u32,
}

impl VerbsQueue {
    pub(super) fn new(
        socket: OwnedFd,
        (pair, completions): (Arc<QueuePair>, Arc<CompletionQueue>),
        (sender, inlet): (Sender, Inlet),
        ring: Option<Arc<MemoryWindow>>,
    ) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, completions.descriptor(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let lifeline = Lifeline::new(socket);
        lifeline.watch_by(&watch)?;
        let mut grants = Grants::default();
        if let Some(ring) = ring {
            grants.add(ring);
        }
        if let Some(bell) = inlet.bell() {
            epoll::add(&watch, bell, epoll::EventData::new_u64(2), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            grants,
            waiting: VecDeque::new(),
            sender,
            inlet,
            pair,
            completions,
            lifeline,
            watch,
            found: Vec::new(),
            finished: VecDeque::new(),
            batching: false,
            failure: None,
            is_broken: false,
            ending: None,
            ending_reported: false,
            armed: false,
            idle_polls: 0,
        })
    }

    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    fn violation(&mut self, reason: impl ToString) {
        self.end(Ending::Violation { reason: reason.to_string() });
        self.inlet.clear();
        self.is_broken = true;
        // From here on the peer reaches no memory of ours. It fails only if that is so already.
        let _ = self.pair.advance(PairState::Failed);
    }

    /// Ends the connection after a call failed that an adapter must be able to do.
    fn adapter_failed(&mut self, what: &str, error: &io::Error) {
        self.is_broken = true;
        self.end(Ending::Failed { status: format!("could not {what}: {error}") });
    }

    /// Takes the completions of the adapter.
    fn reap(&mut self) {
        loop {
            let mut found = std::mem::take(&mut self.found);
            let more = self.completions.poll(&mut found);
            for completion in found.drain(..) {
                self.take(completion);
            }
            self.found = found;
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.adapter_failed("poll the adapter", &error);
                    break;
                }
            }
        }
        self.take_shared();
        self.sender.drain(&mut self.finished);
        self.grants.done(self.sender.completed());
    }

    fn take(&mut self, completion: Completion) {
        if completion.status != 0 {
            self.take_failure(completion);
            return;
        }
        let arrived = match completion.received {
            None if self.failure.is_none() => {
                self.sender.complete(completion.id);
                Ok(())
            }
            None => Ok(()),
            Some(Received::Write) => self.inlet.arrived(completion.immediate, completion.bytes),
            Some(Received::Send) => {
                let units = self.inlet.credit_arrived(completion.immediate);
                units.and_then(|units| self.sender.take_credit(units))
            }
        };
        if let Err(fault) = arrived
            && self.ending.is_none()
        {
            self.violation(fault);
        }
    }

    /// Takes returned units and violations from the owner of a shared receive queue.
    fn take_shared(&mut self) {
        let fault = self.inlet.take_fault();
        let returned = self.inlet.take_returned();
        let fault = fault.or_else(|| self.sender.take_credit(returned).err());
        if let Some(fault) = fault
            && self.ending.is_none()
        {
            self.violation(fault);
        }
    }

    /// Notes the first failed request; all before it have succeeded.
    fn take_failure(&mut self, completion: Completion) {
        self.is_broken = true;
        let Completion { id, status, vendor, .. } = completion;
        if id != RECEIVE_ID && self.failure.is_none() {
            self.sender.complete(id.saturating_sub(1));
            self.failure = Some(Failure { number: id, status, vendor });
        }
    }

    /// Receives the final message. True if the peer has left and some messages are still to arrive.
    fn receive_final_message(&mut self) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let message = self.lifeline.receive();
        let hung_up = self.lifeline.has_hung_up();
        if hung_up {
            self.lifeline.unwatch_by(&self.watch);
        }
        if message.is_some() || hung_up {
            // Everything that the peer did before it sent this or hung up has arrived by now.
            self.reap();
        }
        match message {
            Some(FinalMessage::Goodbye { sent }) => match self.inlet.missing_until(sent) {
                Missing::Nothing => self.end(Ending::Orderly),
                Missing::Untaken => return true,
                Missing::Unwritten if hung_up || self.is_broken => {
                    let arrived = self.inlet.tail();
                    let reason = format!("it left after sending up to {sent}, of which {arrived} came");
                    self.end(Ending::Lost { reason });
                }
                Missing::Unwritten => return true,
            },
            Some(FinalMessage::Failed { status }) => {
                let text = status_text(status.saturating_as::<u32>());
                self.end(Ending::Failed { status: format!("an operation of the peer failed ({text})") });
            }
            Some(FinalMessage::Nonsense { kind }) => {
                self.violation(format!("it sent a final message of the unknown kind {kind}"))
            }
            None if hung_up => {
                let reason = "its process is gone (the socket hung up)".to_owned();
                self.end(Ending::Lost { reason });
            }
            None => {}
        }
        false
    }

    /// Ends the connection of a queue pair in its error state. The socket may know the reason.
    fn end_if_broken(&mut self) {
        if !self.is_broken || self.ending.is_some() || self.receive_final_message() {
            return;
        }
        let status = match self.failure {
            Some(failure) if failure.status != STATUS_FLUSHED => failure.error().to_string(),
            _ => "the queue pair was taken down, as a refused operation of the peer does".to_owned(),
        };
        self.end(Ending::Failed { status });
    }

    /// Makes requests for what waits, as far as there is room.
    fn progress(&mut self) {
        if self.is_broken || self.ending.is_some() {
            return;
        }
        while let Some(mut waiting) = self.waiting.pop_front() {
            let advance = match &mut waiting {
                Waiting::Operation(id, operation, progress) => {
                    self.sender.advance(*id, &operation.as_operation(), progress)
                }
                Waiting::Binding(window) => match self.sender.bind(window) {
                    Some(number) => {
                        self.grants.bound(window, number);
                        Advance::Posted
                    }
                    None => Advance::Stalled,
                },
            };
            if advance == Advance::Stalled {
                self.waiting.push_front(waiting);
                break;
            }
        }
        if let Some(units) = self.inlet.credit_due() {
            if let Err(error) = self.inlet.repost(true) {
                self.adapter_failed("post receive requests", &error);
            } else if self.sender.give_credit(units) {
                self.inlet.credited(units);
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(error) = self.sender.flush() {
            self.adapter_failed("post work requests", &error);
        }
        self.sender.drain(&mut self.finished);
    }

    /// Takes messages until `events` has `limit` entries.
    fn receive(&mut self, events: &mut Vec<Event>, limit: usize) {
        while events.len() < limit {
            match self.inlet.next() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(fault) => {
                    self.violation(fault);
                    return;
                }
            }
        }
        if !self.is_broken
            && let Err(error) = self.inlet.repost(false)
        {
            self.adapter_failed("post receive requests", &error);
        }
        if self.inlet.credit_due().is_some() {
            self.progress();
        }
    }

    /// Fails all operations in flight and reports the ending last.
    fn report_ending(&mut self, events: &mut Vec<Event>, ending: &Ending) {
        if matches!(ending, Ending::Failed { .. }) {
            let status = self.failure.map_or(0, |failure| u64::from(failure.status));
            self.lifeline.send(FinalMessage::Failed { status });
        }
        let failure = self.failure.filter(|_| matches!(ending, Ending::Failed { .. }));
        let failure = failure.filter(|failure| failure.status != STATUS_FLUSHED);
        self.sender.fail(failure, ending, events);
        for waiting in self.waiting.drain(..) {
            if let Waiting::Operation(id, _, progress) = waiting {
                let failure = failure.filter(|failure| failure.concerns(&progress));
                let error = failure.map_or_else(|| OperationError::Closed(ending.clone()), Failure::error);
                events.push(Event::Completed { id, outcome: Err(error) });
            }
        }
        // The adapter releases all memory. It fails only if it has done so already.
        let _ = self.pair.advance(PairState::Failed);
        self.grants.clear();
        self.inlet.leave();
        self.ending_reported = true;
        events.push(Event::Closed(ending.clone()));
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.inlet.announce_sleep(false);
        self.completions.drain_wake_ups();
        if let Some(bell) = self.inlet.bell() {
            bell.drain();
        }
    }
}

impl Queue for VerbsQueue {
    fn grant(&mut self, _key: u64, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError> {
        if let Some(ending) = self.ending.clone() {
            return Err(RegisterError::Closed(ending));
        }
        let os = |action| move |source| RegisterError::Os { action, source };
        let memory = self.sender.locals().device().register(region).map_err(os("register a region"))?;
        let address = memory.address();
        let window = MemoryWindow::new(memory, access).map_err(os("make a memory window over a region"))?;
        let window = Arc::new(window);
        let remote = RemoteRegion { key: u64::from(window.key()), address, length: region.bytes() as u64 };
        self.grants.add(Arc::clone(&window));
        self.waiting.push_back(Waiting::Binding(window));
        self.reap();
        self.progress();
        Ok(remote)
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        self.reap();
        self.waiting
            .retain(|waiting| !matches!(waiting, Waiting::Binding(window) if u64::from(window.key()) == key));
        self.grants.revoke(key, self.sender.completed());
        Ok(())
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        if let Some(ending) = self.ending.clone() {
            return Err(PostError::Closed(ending));
        }
        if !self.waiting.is_empty() || self.sender.is_short() {
            self.reap();
            self.progress();
        }
        let mut progress = Progress::default();
        if !self.waiting.is_empty()
            || self.is_broken
            || self.sender.advance(id, &operation, &mut progress) == Advance::Stalled
        {
            let operation = DeferredOperation::new(operation);
            self.waiting.push_back(Waiting::Operation(id, operation, progress));
        }
        if !self.batching {
            self.flush();
        }
        Ok(())
    }

    fn begin_batch(&mut self) {
        self.batching = true;
    }

    fn end_batch(&mut self) {
        self.batching = false;
        self.flush();
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        if self.ending_reported {
            return;
        }
        let before = events.len();
        let limit = before + EVENTS_PER_POLL_MAX;
        if self.armed || self.idle_polls >= IDLE_POLLS_PER_LOOK {
            if self.armed {
                self.disarm();
            }
            self.idle_polls = 0;
            self.receive_final_message();
        }
        self.reap();
        self.end_if_broken();
        self.progress();
        let finished = self.finished.len().min(EVENTS_PER_POLL_MAX);
        events.extend(self.finished.drain(..finished));
        self.receive(events, limit);
        if events.len() < limit
            && self.finished.is_empty()
            && let Some(ending) = self.ending.clone()
        {
            self.report_ending(events, &ending);
        }
        if events.len() == before {
            self.idle_polls += 1;
        } else {
            self.idle_polls = 0;
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn arm(&mut self) -> bool {
        if !self.armed {
            self.armed = true;
            self.inlet.announce_sleep(true);
            if let Err(error) = self.completions.notify() {
                self.adapter_failed("ask the adapter for a wake-up", &error);
            }
        }
        // Requested first, then checked: an entry that was added in between wakes nobody.
        self.reap();
        self.end_if_broken();
        self.progress();
        let something = !self.finished.is_empty()
            || self.inlet.has_arrivals()
            || (self.ending.is_some() && !self.ending_reported);
        if something {
            self.disarm();
        }
        !something
    }

    fn map_remote(&mut self, _span: RemoteSpan, _access: Access) -> Option<RawSlice> {
        None
    }

    fn spin_us(&self) -> u64 {
        VERBS_SPIN_US
    }

    fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_TIME_MAX;
        let mut dropped = Vec::new();
        while self.ending.is_none() && (self.sender.is_busy() || !self.waiting.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            dropped.clear();
            self.poll(&mut dropped);
            if self.arm() {
                let timeout = Timespec::try_from(left).ok();
                let mut fds = [PollFd::new(&self.watch, PollFlags::IN)];
                // However the sleep ends, the loop checks the deadline.
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            }
        }
        if self.ending.is_none() {
            self.lifeline.send(FinalMessage::Goodbye { sent: self.sender.channel_tail_completed() });
        }
        // The adapter releases all memory before it is deregistered.
        let _ = self.pair.advance(PairState::Failed);
    }
}
